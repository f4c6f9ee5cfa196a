#include "minim/models/manifest.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>

#include "minim/models/json.h"
#include "minim/models/read_file.h"
#include "minim/models/reason.h"
#include "minim/models/sync_file.h"

namespace minim::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
constexpr const char* kFormat = "minim-checkpoint";
constexpr int kVersion = 1;

/// FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: each step is a bijection, so that one changed
/// byte always shows.
std::string hash_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 1 << 16> chunk;
  uint64_t hash = 0xcbf29ce484222325u;
  while (file.read(chunk.data(), chunk.size()) || file.gcount() > 0)
    for (std::streamsize i = 0; i < file.gcount(); ++i)
      hash = (hash ^ uint8_t(chunk[size_t(i)])) * 0x100000001b3u;
  if (!file.eof()) fail(path, " cannot be read");
  std::array<char, 17> hex;
  std::snprintf(hex.data(), hex.size(), "%016llx", static_cast<unsigned long long>(hash));
  return hex.data();
}

Json read_manifest(const fs::path& dir) {
  if (!fs::is_directory(dir)) fail("it is not a directory");
  if (!fs::is_regular_file(dir / kManifestName))
    fail("it has no ", kManifestName, ": it is not a checkpoint, or was copied in part");
  Json manifest = parse_json(read_file(dir / kManifestName, "manifest"));
  if (!manifest.is_object() || manifest.value("format", "") != kFormat)
    fail("its ", kManifestName, " is not of the format '", kFormat, "'");
  if (const Json& version = manifest.at("version"); version != kVersion)
    fail("it is of version ", version.dump(), "; this program reads version ", kVersion);
  return manifest;
}

void check_file(const fs::path& path, const std::string& name, const Json& expected) {
  if (!fs::is_regular_file(path)) fail("'", name, "' is missing");
  const auto size = fs::file_size(path);
  if (expected.at("size") != size)
    fail("'", name, "' has ", size, " bytes, not the recorded ", expected.at("size").dump());
  if (const std::string hash = hash_of(path); expected.at("fnv1a64") != hash)
    fail("'", name, "' is damaged: its hash is ", hash, ", not the recorded ",
         expected.at("fnv1a64").dump());
}

}  // namespace

void write_manifest(const fs::path& dir) {
  JsonText files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_symlink() || (!entry.is_regular_file() && !entry.is_directory()))
      fail("checkpoint ", dir, " holds ", entry.path(),
           ", which is neither a file nor a directory");
    const std::string name = entry.path().lexically_relative(dir).generic_string();
    if (!entry.is_regular_file() || name == kManifestName) continue;
    JsonText about;
    about.add_value("size", fs::file_size(entry.path()))
        .add_value("fnv1a64", hash_of(entry.path()));
    files.add(name, about.text());
  }
  JsonText manifest;
  manifest.add_value("format", kFormat).add_value("version", kVersion).add("files", files.text());
  write_file_atomically(dir / kManifestName, manifest.text() + "\n");
}

void verify_manifest(const fs::path& dir) try {
  const Json manifest = read_manifest(dir);
  for (const auto& [name, expected] : manifest.at("files").get_ref<const Json::object_t&>())
    check_file(dir / name, name, expected);
} catch (const Error& e) {
  fail("checkpoint ", dir, ": ", e.what());
} catch (const Json::exception& e) {
  fail("checkpoint ", dir, ": its ", kManifestName, " is damaged: ", reason(e));
} catch (const fs::filesystem_error& e) {
  fail("checkpoint ", dir, ": ", reason(e));
}

}  // namespace minim::models
