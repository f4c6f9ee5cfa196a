#include "minim/models/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <tuple>

#include "minim/models/json.h"
#include "minim/models/read_file.h"
#include "minim/models/reason.h"

namespace minim::models {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using Json = nlohmann::ordered_json;
constexpr const char* kMetadataKey = "__metadata__";
constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr int kMaxDepth = 3;                  // of the numbers in {"name": {"shape": [...]}}
constexpr size_t kLengthField = sizeof(uint64_t);

constexpr std::array<const char*, kDTypes> kFormatNames{"BOOL", "U8",  "I32", "I64",     "F16",
                                                        "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2"};
static_assert(DType::boolean == DType(0) && DType::i64 == DType(3) && DType::f64 == DType(7));

std::optional<uint64_t> bytes_needed(std::span<const int64_t> shape, DType dtype) {
  uint64_t bytes = size_of(dtype);
  for (int64_t n : shape)
    if (n < 0 || __builtin_mul_overflow(bytes, uint64_t(n), &bytes)) return std::nullopt;
  return bytes;
}

void check_size(const std::string& name, std::span<const int64_t> shape, DType dtype,
                uint64_t found) {
  const auto needed = bytes_needed(shape, dtype);
  if (needed == found) return;
  const std::string sizes = Json(shape).dump();
  if (!needed)
    fail("'", name, "' has the shape ", sizes, ", which is negative or beyond 64 bits of bytes");
  fail("'", name, "' of shape ", sizes, " and dtype ", name_of(dtype), " needs ", *needed,
       " bytes but has ", found);
}

std::vector<const Blob*> in_file_order(std::span<const Blob> blobs) {
  std::vector<const Blob*> order;
  for (const Blob& b : blobs) order.push_back(&b);
  std::sort(order.begin(), order.end(), [](const Blob* a, const Blob* b) {
    return std::pair(size_of(b->dtype), std::string_view(a->name)) <
           std::pair(size_of(a->dtype), std::string_view(b->name));
  });
  return order;
}

std::string text_of(const Metadata& metadata) {
  JsonText text;
  for (const auto& [key, value] : metadata) text.add_value(key, value);
  return text.text();
}

std::string header_of(std::span<const Blob* const> order, const Metadata& metadata) {
  JsonText header;
  if (!metadata.empty()) header.add(kMetadataKey, text_of(metadata));
  std::set<std::string_view> names{kMetadataKey};
  uint64_t offset = 0;
  for (const Blob* b : order) {
    if (!names.insert(b->name).second) fail("'", b->name, "' is reserved or given twice as a name");
    check_size(b->name, b->shape, b->dtype, b->bytes.size());
    const uint64_t end = offset + b->bytes.size();
    JsonText entry;
    entry.add_value("dtype", kFormatNames[size_t(b->dtype)])
        .add_list("shape", b->shape)
        .add_list("data_offsets", std::array{offset, end});
    header.add(b->name, entry.text());
    offset = end;
  }
  std::string text = header.text();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeader)
    fail("the header would have ", text.size(), " bytes; the format allows ", kMaxHeader);
  return text;
}

/// nlohmann keeps the last of two equal keys and says nothing; here a second one is an error.
Json parse_header(std::string_view text) {
  std::set<std::string> seen;
  std::string outer;
  auto refuse_doubles = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) fail("the header is nested deeper than the format knows");
    if (event != Json::parse_event_t::key || depth > 2) return true;
    const auto key = value.get<std::string>();
    if (depth == 1) outer = key;
    if (!seen.insert(depth == 1 ? outer : outer + '\0' + key).second)
      fail("the header names '", key, "' twice");
    return true;
  };
  try {
    return Json::parse(text, refuse_doubles);
  } catch (const Json::exception& e) {
    fail("the header is not valid JSON: ", reason(e));
  }
}

struct Entry {
  Blob blob;
  uint64_t begin, end;
};

const Json& field(const std::string& name, const Json& entry, const char* key) {
  const auto at = entry.is_object() ? entry.find(key) : entry.end();
  if (at == entry.end())
    fail("'", name, "' has no ", key, ": expected an object with dtype, shape and data_offsets");
  return *at;
}

std::vector<int64_t> sizes(const std::string& name, const Json& entry, const char* key) {
  const Json& list = field(name, entry, key);
  auto is_size = [](const Json& n) {
    return n.is_number_unsigned() && n.get<uint64_t>() <= uint64_t(INT64_MAX);
  };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_size))
    fail("'", name, "' has the ", key, " ", list.dump(),
         ": expected whole numbers from 0 to 2^63-1");
  return list.get<std::vector<int64_t>>();
}

DType dtype_of(const std::string& name, const Json& entry) {
  const Json& given = field(name, entry, "dtype");
  const auto at = std::find_if(kFormatNames.begin(), kFormatNames.end(),
                               [&](const char* known) { return given == known; });
  if (at == kFormatNames.end())
    fail("'", name, "' has the dtype ", given.dump(),
         ": known are BOOL U8 I32 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2");
  return DType(at - kFormatNames.begin());
}

Entry parse_entry(const std::string& name, const Json& entry, uint64_t data_size) {
  Blob blob{name, dtype_of(name, entry), sizes(name, entry, "shape"), {}};
  const auto offsets = sizes(name, entry, "data_offsets");
  if (offsets.size() != 2) fail("'", name, "' has ", offsets.size(), " data_offsets, not 2");
  const uint64_t begin = uint64_t(offsets[0]), end = uint64_t(offsets[1]);
  if (begin > end || end > data_size)
    fail("'", name, "' lies at bytes ", begin, " to ", end, " of the data, which has ", data_size,
         " bytes: the file was cut short or is damaged");
  check_size(name, blob.shape, blob.dtype, end - begin);
  return {std::move(blob), begin, end};
}

Metadata parse_metadata(const Json& given) {
  auto is_string = [](const Json& v) { return v.is_string(); };
  if (!given.is_object() || !std::all_of(given.begin(), given.end(), is_string))
    fail(kMetadataKey, " must map strings to strings, not be ", given.dump());
  return given.get<Metadata>();
}

void check_contiguous(std::vector<Entry>& entries, uint64_t data_size) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Entry& e : entries) {
    if (e.begin != at)
      fail("'", e.blob.name, "' begins at byte ", e.begin, " of the data where ", at,
           " was expected: arrays may neither overlap nor leave holes");
    at = e.end;
  }
  if (at != data_size) fail("the data has ", data_size, " bytes but the arrays end at ", at);
}

void check_booleans(const Blob& blob) {
  if (blob.dtype != DType::boolean) return;
  for (std::byte b : blob.bytes)
    if (b > std::byte{1}) fail("'", blob.name, "' is BOOL but has a byte ", int(b), ", not 0 or 1");
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const Blob> blobs,
                       const Metadata& metadata) try {
  const auto order = in_file_order(blobs);
  const std::string header = header_of(order, metadata);
  const uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), kLengthField) << header;
  for (const Blob* b : order)
    file.write(reinterpret_cast<const char*>(b->bytes.data()), std::streamsize(b->bytes.size()));
  if (!file.flush()) fail("it cannot be written: ", std::strerror(errno));
} catch (const Error& e) {
  fail("safetensors file ", path, ": ", e.what());
} catch (const Json::exception& e) {
  fail("safetensors file ", path, ": a name or metadata is not UTF-8: ", reason(e));
}

SafeTensors SafeTensors::read(const std::filesystem::path& path) {
  SafeTensors result;
  result.file_ = read_file(path, "safetensors");
  try {
    result.parse();
  } catch (const Error& e) {
    fail("safetensors file ", path, ": ", e.what());
  }
  return result;
}

void SafeTensors::parse() {
  if (file_.size() < kLengthField) fail("it has ", file_.size(), " bytes; a header length needs 8");
  uint64_t length;
  std::memcpy(&length, file_.data(), kLengthField);
  const uint64_t rest = file_.size() - kLengthField;
  if (length > kMaxHeader)
    fail("it says its header has ", length, " bytes, more than the allowed ", kMaxHeader,
         ": it is not a safetensors file");
  if (length > rest)
    fail("it says its header has ", length, " bytes but ", rest,
         " remain: it was cut short or is not a safetensors file");

  const Json header = parse_header(std::string_view(file_).substr(kLengthField, length));
  if (!header.is_object()) fail("the header must be a JSON object, not ", header.type_name());
  const uint64_t data_size = rest - length;
  std::vector<Entry> entries;
  for (const auto& [name, entry] : header.items())
    if (name == kMetadataKey)
      metadata_ = parse_metadata(entry);
    else
      entries.push_back(parse_entry(name, entry, data_size));
  check_contiguous(entries, data_size);

  file_.insert(0, -(kLengthField + length) % 8, '\0');  // other writers need not align the data
  const auto* data = reinterpret_cast<const std::byte*>(file_.data() + file_.size() - data_size);
  for (Entry& e : entries) {
    e.blob.bytes = {data + e.begin, size_t(e.end - e.begin)};
    check_booleans(e.blob);
    blobs_.push_back(std::move(e.blob));
  }
  std::sort(blobs_.begin(), blobs_.end(),
            [](const Blob& a, const Blob& b) { return a.name < b.name; });
}

const Blob* SafeTensors::find(std::string_view name) const {
  const auto at = std::lower_bound(blobs_.begin(), blobs_.end(), name,
                                   [](const Blob& b, std::string_view n) { return b.name < n; });
  return at != blobs_.end() && at->name == name ? &*at : nullptr;
}

}  // namespace minim::models
