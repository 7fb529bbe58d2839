#include "src/machines/chunk_seal.h"

#include <algorithm>

#include "aegis.h"
#include "aegis128l.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal::machines {
namespace {

// libaegis works on copies of its state, and of up to 32 bytes of a chunk, and leaves them there.
constexpr size_t kStackBytes = 1024;

}  // namespace

void ChunkSeal::WipeState::operator()(aegis128l_state* state) const {
  sodium_memzero(state, sizeof(*state));
  delete state;
}

ChunkSeal::ChunkSeal() : state_(new aegis128l_state()) {
  static_assert(kCipherKeyBytes == aegis128l_KEYBYTES);
  static_assert(Nonce::size() == aegis128l_NPUBBYTES);
  static_assert(kTagBytes == aegis128l_ABYTES_MIN);
  // Chooses the processor's instructions; libaegis has done so at the program's start already.
  static const bool ready = aegis_init() == 0;
  SHOAL_CHECK(ready);
}

ChunkSeal::ChunkSeal(BytesView key, uint64_t first) : ChunkSeal() {
  Begin(key);
  next_ = first;
}

void ChunkSeal::Begin(BytesView key) {
  SHOAL_CHECK(key.size() == 32);
  key_ = SecretArray<kCipherKeyBytes>(key.first(kCipherKeyBytes));
  nonce_prefix_ = SecretArray<kNoncePrefixBytes>(key.subspan(kCipherKeyBytes, kNoncePrefixBytes));
  keyed_ = true;
  next_ = 0;
}

ChunkSeal::Nonce ChunkSeal::NextNonce() {
  SHOAL_CHECK(keyed_);
  Nonce nonce;
  std::ranges::copy(nonce_prefix_.view(), nonce.data());
  StoreLe(nonce.data() + kNoncePrefixBytes, next_++);
  return nonce;
}

void ChunkSeal::Seal(BytesView plain, MutableBytes sealed) {
  BeginChunk(sealed);
  Add(plain);
  EndChunk();
}

void ChunkSeal::BeginChunk(MutableBytes sealed) {
  SHOAL_CHECK(sealed.size() >= kTagBytes);
  left_ = sealed;
  aegis128l_state_init(state_.get(), nullptr, 0, NextNonce().data(), key_.data());
}

void ChunkSeal::Add(BytesView plain) {
  if (plain.empty()) return;
  SHOAL_CHECK(plain.size() + kTagBytes <= left_.size());
  SHOAL_CHECK(
      aegis128l_state_encrypt_update(state_.get(), left_.data(), plain.data(), plain.size()) == 0);
  left_ = left_.subspan(plain.size());
}

void ChunkSeal::EndChunk() {
  SHOAL_CHECK(left_.size() == kTagBytes);
  SHOAL_CHECK(aegis128l_state_encrypt_final(state_.get(), left_.data(), kTagBytes) == 0);
  sodium_memzero(state_.get(), sizeof(aegis128l_state));
  sodium_stackzero(kStackBytes);
}

bool ChunkSeal::Open(BytesView sealed, MutableBytes plain) {
  SHOAL_CHECK(sealed.size() == plain.size() + kTagBytes);
  const BytesView cipher = sealed.first(plain.size()), tag = sealed.subspan(plain.size());
  const bool same =
      aegis128l_decrypt_detached(plain.data(), cipher.data(), cipher.size(), tag.data(), kTagBytes,
                                 nullptr, 0, NextNonce().data(), key_.data()) == 0;
  sodium_stackzero(kStackBytes);
  if (!same) sodium_memzero(plain.data(), plain.size());
  return same;
}

}  // namespace shoal::machines
