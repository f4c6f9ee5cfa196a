// MANIFEST, a line "%", then state.json.
#include "minim/models/manifest.h"
#include "minim/tests/fuzz/fuzz.h"
#include "minim/tools/train_state.h"

using namespace minim;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view both = fuzz::text_of(data, size), line = "\n%\n";
  const size_t end = both.find(line);
  const std::string state(end < size ? both.substr(end + line.size()) : both);
  fuzz::file_of(both.substr(0, end), models::kManifestName);
  fuzz::file_of(state, "state.json");
  fuzz::expect_value_or_error([] { models::verify_manifest(fuzz::directory()); });
  return fuzz::expect_value_or_error([&] {
    const std::string saved = to_json(train_state_from(state));
    if (to_json(train_state_from(saved)) != saved) __builtin_trap();
  });
}
