#include "minim/models/sentence_piece.h"

#include "minim/core/error.h"
#include "minim/models/normalizer_trie.h"
#include "minim/models/utf8.h"

#ifdef MINIM_SENTENCEPIECE
#include <sentencepiece_processor.h>

#include <cstdio>

namespace minim::models {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

void check(const sentencepiece::util::Status& status, const char* what) {
  if (!status.ok()) fail("SentencePiece cannot ", what, ": ", status.ToString());
}

/// Of a piece like <0x0A>.
char byte_of(const std::string& piece) {
  unsigned byte = 0;
  if (std::sscanf(piece.c_str(), "<0x%2x>", &byte) != 1)
    fail("SentencePiece calls '", piece, "' a byte, which are written as <0x0A>");
  return char(byte);
}

std::string text_of(const Processor& p, int32_t id) {
  if (p.IsControl(id)) return "";
  if (p.IsUnknown(id)) return p.DecodeIds({id});
  std::string text = p.IdToPiece(id);
  if (p.IsByte(id)) return {byte_of(text)};
  constexpr std::string_view kSpace = "\u2581";
  for (size_t at = 0; (at = text.find(kSpace, at)) != text.npos;)
    text.replace(at, kSpace.size(), " ");
  return text;
}

}  // namespace

std::shared_ptr<const SentencePiece> load_sentence_piece(std::string model) {
  auto p = std::make_shared<Processor>();
  check_normalizer_trie(model);
  check(p->LoadFromSerializedProto(model), "read the model");
  return std::make_shared<SentencePiece>(SentencePiece{
      .model = std::move(model),
      .vocab = p->GetPieceSize(),
      .unknown = p->unk_id(),
      .encode =
          [p](std::string_view text) {
            for (size_t at = 0; at < text.size();) next_code_point(text, at);  // it would guess
            std::vector<int32_t> ids;
            check(p->Encode(text, &ids), "encode the text");
            return ids;
          },
      .decode =
          [p](std::span<const int32_t> ids) {
            std::string text;
            check(p->Decode(std::vector<int>(ids.begin(), ids.end()), &text), "decode");
            return text;
          },
      .text_of = [p](int32_t id) { return text_of(*p, id); },
  });
}

}  // namespace minim::models

#else

namespace minim::models {

std::shared_ptr<const SentencePiece> load_sentence_piece(std::string) {
  fail(
      "this minim was built without SentencePiece: install libsentencepiece-dev, configure and "
      "build again, or take --tokenizer char or byte");
}

}  // namespace minim::models

#endif
