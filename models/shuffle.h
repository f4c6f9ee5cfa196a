// models/shuffle.h -- a random order without a table: a permutation that is computed element by
// element. It is a Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations
// from pseudorandom functions", SIAM J. Comput. 17, 1988) whose round function is Philox, on the
// least even number of bits that holds n; what falls outside is sent through again (cycle walking:
// Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
#pragma once
#include <cstdint>

namespace minim::models {

/// Where `position` goes in the permutation of 0 .. n-1 that belongs to (seed, epoch). Needs
/// position < n and epoch < 2^56.
uint64_t shuffled(uint64_t seed, uint64_t epoch, uint64_t position, uint64_t n);

}  // namespace minim::models
