#include "src/machines/sign_of_life.h"

#include <array>

#include "sodium.h"
#include "src/base/check.h"

namespace shoal::machines {
namespace {

constexpr size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kContentBytes = 8 * 4;
static_assert(SignOfLife::kSealedBytes ==
              kNonceBytes + kContentBytes + crypto_aead_xchacha20poly1305_ietf_ABYTES);

}  // namespace

Bytes Seal(const SignOfLife& sign, BytesView key, RandomSource& random) {
  SHOAL_CHECK(key.size() == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);
  std::array<uint8_t, kContentBytes> content;
  StoreLe(content.data(), sign.number);
  StoreLe(content.data() + 8, sign.calls);
  StoreLe(content.data() + 16, sign.sent);
  StoreLe(content.data() + 24, uint64_t{sign.worked} | uint64_t{sign.finished} << 1);
  Bytes sealed(SignOfLife::kSealedBytes);
  random.Fill(MutableBytes(sealed).first(kNonceBytes));
  crypto_aead_xchacha20poly1305_ietf_encrypt(sealed.data() + kNonceBytes, nullptr, content.data(),
                                             content.size(), nullptr, 0, nullptr, sealed.data(),
                                             key.data());
  return sealed;
}

std::optional<SignOfLife> OpenSign(BytesView sealed, BytesView key) {
  SHOAL_CHECK(key.size() == crypto_aead_xchacha20poly1305_ietf_KEYBYTES);
  std::array<uint8_t, kContentBytes> content;
  if (sealed.size() != SignOfLife::kSealedBytes ||
      crypto_aead_xchacha20poly1305_ietf_decrypt(
          content.data(), nullptr, nullptr, sealed.data() + kNonceBytes,
          sealed.size() - kNonceBytes, nullptr, 0, sealed.data(), key.data()) != 0) {
    return std::nullopt;
  }
  const auto flags = LoadLe<uint64_t>(content.data() + 24);
  return SignOfLife{.number = LoadLe<uint64_t>(content.data()),
                    .calls = LoadLe<uint64_t>(content.data() + 8),
                    .sent = LoadLe<uint64_t>(content.data() + 16),
                    .worked = (flags & 1) != 0,
                    .finished = (flags & 2) != 0};
}

}  // namespace shoal::machines
