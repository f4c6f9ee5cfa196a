// models/normalizer_trie.h -- the part of a SentencePiece model that its library follows without
// looking whether it stays within.
#pragma once
#include <string_view>

namespace minim::models {

/// Looks through the table of normalizer_spec.precompiled_charsmap: a trie of bytes as a double
/// array (Darts-clone, https://github.com/s-yata/darts-clone), and the texts that its leaves name.
/// @param model a serialized ModelProto; what is none has nothing to look at.
/// @throws Error where a text could lead outside of the trie or of the texts.
void check_normalizer_trie(std::string_view model);

}  // namespace minim::models
