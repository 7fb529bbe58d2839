// RFC 9180's test vectors for our two suites in base mode: appendices A.2.1 and A.7.1, as in
// github.com/cfrg/draft-irtf-cfrg-hpke, draft-irtf-cfrg-hpke.md at commit
// b1f7cb0cdeab6906c61b3d6574e8bdfdbe1cd3fb. Only what a test uses.
#ifndef SHOAL_SRC_ONION_TESTING_RFC9180_VECTORS_H_
#define SHOAL_SRC_ONION_TESTING_RFC9180_VECTORS_H_

#include "src/onion/hpke.h"

namespace shoal::onion::testing {

// All values in hexadecimal.
struct Rfc9180Vector {
  Aead aead;
  const char* info;
  const char* ephemeral_secret;  // skEm
  const char* recipient_public;  // pkRm
  const char* recipient_secret;  // skRm
  const char* enc;
  const char* shared_secret;
  const char* key_schedule_context;
  const char* exporter_secret;
  struct {
    const char* context;
    const char* value;
  } exports[3];
  // Of the suite that seals; message 0.
  const char* key;
  const char* base_nonce;
  const char* aad;
  const char* plaintext;
  const char* ciphertext;
};

inline constexpr Rfc9180Vector kRfc9180Vectors[] = {
    {Aead::kChaCha20Poly1305,
     "4f6465206f6e2061204772656369616e2055726e",
     "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600",
     "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a",
     "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
     "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a",
     "0bbe78490412b4bbea4812666f7916932b828bba79942424abb65244930d69a7",
     "00431df6cd95e11ff49d7013563baf7f11588c75a6611ee2a4404a49306ae4cf"
     "c5b69c5718a60cc5876c358d3f7fc31ddb598503f67be58ea1e798c0bb19eb97"
     "96",
     "a3b010d4994890e2c6968a36f64470d3c824c8f5029942feb11e7a74b2921922",
     {{"", "4bbd6243b8bb54cec311fac9df81841b6fd61f56538a775e7c80a9f40160606e"},
      {"00", "8c1df14732580e5501b00f82b10a1647b40713191b7c1240ac80e2b68808ba69"},
      {"54657374436f6e74657874",
       "5acb09211139c43b3090489a9da433e8a30ee7188ba8b0a9a1ccf0c229283e53"}},
     "ad2744de8e17f4ebba575b3f5f5a8fa1f69c2a07f6e7500bc60ca6e3e3ec1c91",
     "5c4d98150661b848853b547f",
     "436f756e742d30",
     "4265617574792069732074727574682c20747275746820626561757479",
     "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db"
     "21993c62ce81883d2dd1b51a28"},
    {Aead::kExportOnly,
     "4f6465206f6e2061204772656369616e2055726e",
     "095182b502f1f91f63ba584c7c3ec473d617b8b4c2cec3fad5af7fa6748165ed",
     "194141ca6c3c3beb4792cd97ba0ea1faff09d98435012345766ee33aae2d7664",
     "33d196c830a12f9ac65d6e565a590d80f04ee9b19c83c87f2c170d972a812848",
     "e5e8f9bfff6c2f29791fc351d2c25ce1299aa5eaca78a757c0b4fb4bcd830918",
     "e81716ce8f73141d4f25ee9098efc968c91e5b8ce52ffff59d64039e82918b66",
     "009bd09219212a8cf27c6bb5d54998c5240793a70ca0a892234bd5e082bc619b"
     "6a3f4c22aa6d9a0424c2b4292fdf43b8257df93c2f6adbf6ddc9c64fee26bdd2"
     "92",
     "79dc8e0509cf4a3364ca027e5a0138235281611ca910e435e8ed58167c72f79b",
     {{"", "7a36221bd56d50fb51ee65edfd98d06a23c4dc87085aa5866cb7087244bd2a36"},
      {"00", "d5535b87099c6c3ce80dc112a2671c6ec8e811a2f284f948cec6dd1708ee33f0"},
      {"54657374436f6e74657874",
       "ffaabc85a776136ca0c378e5d084c9140ab552b78f039d2e8775f26efff4c70e"}},
     "",
     "",
     "",
     "",
     ""},
};

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_RFC9180_VECTORS_H_
