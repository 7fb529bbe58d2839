// Prints keys and signatures, one set a line, for another library to check:
//   material secret_key public_key proof message signature       (hexadecimal)
// then "aggregate" public_key signature of all of them on the message "all".
#include <cstdio>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/signature/bls.h"

namespace {

// Known bytes in place of randomness: Generate asks for 32, which are the key material.
class Material final : public shoal::RandomSource {
 public:
  explicit Material(uint8_t number) : number_(number) {}
  void Fill(shoal::MutableBytes out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(number_ * 16 + i);
  }

 private:
  const uint8_t number_;
};

}  // namespace

int main() {
  using namespace shoal;
  std::vector<signature::ProvenKey> keys;
  std::vector<signature::Signature> signatures;
  const std::vector<std::string> messages = {"", "abc", std::string(32, '\0'),
                                             std::string(300, 'q')};
  for (uint8_t i = 0; i < messages.size(); ++i) {
    Material material(i);
    const signature::SecretKey key = signature::SecretKey::Generate(material);
    Bytes bytes(32);
    material.Fill(bytes);
    std::printf("%s %s %s %s %s %s\n", Hex(bytes).c_str(), Hex(key.bytes().view()).c_str(),
                Hex(key.public_key().bytes()).c_str(), Hex(key.ProvePossession().bytes()).c_str(),
                messages[i].empty() ? "-" : Hex(AsBytes(messages[i])).c_str(),
                Hex(key.Sign(AsBytes(messages[i])).bytes()).c_str());
    const auto proven =
        signature::ProvenKey::FromBytes(key.public_key().bytes(), key.ProvePossession().bytes());
    SHOAL_CHECK(proven.ok());
    keys.push_back(*proven);
    signatures.push_back(key.Sign(AsBytes("all")));
  }
  const auto key = signature::AggregateKeys(keys);
  const auto signature = signature::AggregateSignatures(signatures);
  SHOAL_CHECK(key.ok() && signature.ok());
  std::printf("aggregate %s %s\n", Hex(key->bytes()).c_str(), Hex(signature->bytes()).c_str());
  return 0;
}
