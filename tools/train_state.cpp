#include "minim/tools/train_state.h"

#include <algorithm>
#include <limits>

#include "minim/models/json.h"
#include "minim/models/reason.h"

namespace minim {
namespace {

using models::integer_in;
using nlohmann::json;

int64_t count_in(const json& state, const char* key) {
  return std::min(integer_in(state, key), int64_t{1'000'000'000'000'000});  // more may be added
}

double scale_in(const json& scaler) {
  constexpr double kLeast = std::numeric_limits<float>::denorm_min();
  const json& found = scaler.at("scale");
  const double value = found.is_number() ? found.get<double>() : NAN;
  if (!(value >= kLeast && std::isfinite(value)))
    fail("its scale is ", found.dump(), "; expected a number of at least ", kLeast);
  return value;
}

amp::ScalerState scaler_in(const json& scaler) {
  amp::ScalerState s{.scale = scale_in(scaler),
                     .growth_tracker = count_in(scaler, "growth_tracker"),
                     .skips_at_floor = count_in(scaler, "skips_at_floor"),
                     .seen = count_in(scaler, "seen")};
  if (scaler.contains("probed_from")) {  // older files have none
    const json& from = scaler["probed_from"];
    s.probed_from = from.is_number() ? from.get<double>() : NAN;
    if (!(s.probed_from >= 0 && std::isfinite(s.probed_from)))
      fail("its probed_from is ", from.dump(), "; expected a number of at least 0");
  }
  const json& recent = scaler.at("recent");
  for (size_t i = 0; i < s.recent.size(); ++i) {
    if (!recent.at(i).is_number_unsigned())
      fail("its recent is ", recent.dump(), "; expected two numbers of 64 bits");
    s.recent[i] = recent.at(i).get<uint64_t>();
  }
  return s;
}

TrainState state_in(const json& j) {
  TrainState s{.step = count_in(j, "step"),
               .skipped = count_in(j, "skipped"),
               .seed = integer_in(j, "seed", INT64_MIN),
               .precision = j.at("precision").get<std::string>(),
               .optimizer = j.at("optimizer").get<std::string>(),
               .data = j.at("data").get<std::string>(),
               .vocab = count_in(j, "vocab"),
               .scaler = scaler_in(j.at("scaler"))};
  s.skipped = std::min(s.skipped, s.step);
  if (j.contains("micro_batches")) s.micro_batches = count_in(j, "micro_batches");
  if (j.contains("sequences")) s.sequences = count_in(j, "sequences");
  if (!j.at("loss").is_null()) s.loss = j.at("loss").get<double>();  // JSON has no NaN
  if (j.contains("data_hash")) s.data_hash = j.at("data_hash").get<std::string>();
  const json counts{{"nonzero", j.at("underflow").at(0)}, {"lost", j.at("underflow").at(1)}};
  s.gradients_nonzero = count_in(counts, "nonzero");
  s.gradients_lost = count_in(counts, "lost");
  return s;
}

}  // namespace

std::string to_json(const TrainState& s) {
  models::JsonText scaler;
  scaler.add_value("scale", s.scaler.scale)
      .add_value("growth_tracker", s.scaler.growth_tracker)
      .add_value("skips_at_floor", s.scaler.skips_at_floor)
      .add_value("seen", s.scaler.seen)
      .add_value("probed_from", s.scaler.probed_from)
      .add_list("recent", s.scaler.recent);
  models::JsonText state;
  state.add_value("step", s.step)
      .add_value("skipped", s.skipped)
      .add_value("loss", s.loss)
      .add_value("seed", s.seed)
      .add_value("precision", s.precision)
      .add_value("optimizer", s.optimizer)
      .add_value("data", s.data)
      .add_value("vocab", s.vocab)
      .add("scaler", scaler.text())
      .add_list("underflow", std::array{s.gradients_nonzero, s.gradients_lost});
  if (s.data_hash) state.add_value("data_hash", *s.data_hash);
  if (s.micro_batches) state.add_value("micro_batches", *s.micro_batches);
  if (s.sequences) state.add_value("sequences", *s.sequences);
  return state.text() + "\n";
}

TrainState train_state_from(const std::string& text) try {
  return state_in(models::parse_json(text));
} catch (const json::exception& e) {
  fail("state.json cannot be read: ", models::reason(e));
} catch (const Error& e) {
  fail("state.json cannot be used: ", e.what());
}

}  // namespace minim
