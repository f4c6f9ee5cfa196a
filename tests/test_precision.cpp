#include <doctest/doctest.h>

#include "minim/amp/precision.h"

using namespace minim;
using amp::Precision;
using amp::resolve_precision;

TEST_CASE("each precision says what is stored, computed, kept and scaled") {
  struct Row {
    const char* mode;
    DType params, compute;
    bool autocast, masters, stochastic, scaler;
  };
  for (const Row& r : {Row{"fp32", DType::f32, DType::f32, false, false, false, false},
                       Row{"amp-bf16", DType::f32, DType::bf16, true, false, false, false},
                       Row{"amp-fp16", DType::f32, DType::f16, true, false, false, true},
                       Row{"bf16-master", DType::bf16, DType::bf16, false, true, false, false},
                       Row{"fp16-master", DType::f16, DType::f16, false, true, false, true},
                       Row{"bf16-sr", DType::bf16, DType::bf16, false, false, true, false}}) {
    CAPTURE(r.mode);
    Precision p = resolve_precision(r.mode);
    CHECK(p.mode == r.mode);
    CHECK(p.params == r.params);
    CHECK(p.compute == r.compute);
    CHECK(p.autocast == r.autocast);
    CHECK(p.masters == r.masters);
    CHECK(p.stochastic == r.stochastic);
    CHECK(p.scaler() == r.scaler);
    CHECK(!resolve_precision(r.mode, "none").scaler());
  }
  CHECK(!Precision{}.scaler());
}

TEST_CASE("a loss scale is dynamic, fixed, or none") {
  CHECK(resolve_precision("amp-fp16", "dynamic").scaler_config.dynamic);
  Precision fixed = resolve_precision("fp16-master", "1024");
  CHECK(fixed.scaler());
  CHECK(!fixed.scaler_config.dynamic);
  CHECK(fixed.scaler_config.init_scale == 1024);
  CHECK_NOTHROW(amp::GradScaler{fixed.scaler_config});
  CHECK(resolve_precision("amp-fp16", "none", "lean").policy == amp::Policy::lean);
}

TEST_CASE("S7: a loss scale where the range is fp32's is a contradiction that names both sides") {
  for (const char* mode : {"fp32", "amp-bf16", "bf16-master", "bf16-sr"})
    for (const char* scale : {"dynamic", "1024"}) {
      CAPTURE(mode);
      std::string text;
      try {
        resolve_precision(mode, scale);
      } catch (const Error& e) {
        text = e.what();
      }
      CHECK(text.find(std::string("loss scale '") + scale + "' contradicts precision '" + mode +
                      "'") != std::string::npos);
    }
}

TEST_CASE("words that are no precision, loss scale or policy are errors") {
  CHECK_THROWS_WITH_AS(
      resolve_precision("fp16"),
      "'fp16' is no precision; known: fp32 amp-bf16 amp-fp16 bf16-master fp16-master bf16-sr",
      Error);
  for (const char* scale : {"", "0", "-2", "inf", "nan", "1e39", "12x", "auto "})
    CHECK_THROWS_AS(resolve_precision("amp-fp16", scale), Error);
  CHECK_THROWS_AS(resolve_precision("amp-fp16", "auto", "fat"), Error);
}

TEST_CASE("a precision describes itself in one line") {
  CHECK(describe(resolve_precision("amp-fp16")) ==
        "precision amp-fp16: parameters f32, compute f16 by autocast (policy torch), gradients "
        "f32, loss scale dynamic from "
        "65536");
  CHECK(describe(resolve_precision("bf16-master")) ==
        "precision bf16-master: parameters bf16 with f32 masters, compute bf16, gradients f32, "
        "loss scale none");
  CHECK(describe(resolve_precision("fp16-master", "8")) ==
        "precision fp16-master: parameters f16 with f32 masters, compute f16, gradients f32, loss "
        "scale fixed at 8");
  CHECK(describe(resolve_precision("bf16-sr")) ==
        "precision bf16-sr: parameters bf16 rounded stochastically, compute bf16, gradients f32, "
        "loss scale none");
}
