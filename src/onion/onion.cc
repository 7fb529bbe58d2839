#include "src/onion/onion.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/check.h"
#include "src/base/secret.h"

namespace shoal::onion {
namespace {

// Submissions that share a batch of the curve's kernels.
constexpr size_t kBatch = 128;
constexpr absl::string_view kLayerSeed = "seed";
constexpr absl::string_view kSlotSeed = "slot";

// What binds a layer to its round and party: a label, the round id, the party's number, 1 byte.
Info InfoFor(Aead aead, const Digest& round_id, uint32_t party) {
  constexpr absl::string_view kLabel = "shoal onion v2";
  std::array<uint8_t, kLabel.size() + 33> info;
  std::copy(kLabel.begin(), kLabel.end(), info.begin());
  std::copy(round_id.begin(), round_id.end(), info.begin() + kLabel.size());
  info.back() = static_cast<uint8_t>(party);
  return Info(aead, info);
}

// The last layer seals nothing.
Aead AeadOf(size_t layers) { return layers == 1 ? Aead::kExportOnly : Aead::kChaCha20Poly1305; }

// Makes layers for party `party`, which is the last if `layers` is 1, in boxes around messages
// (none at the last party), and writes their seeds. Without boxes only the seeds are computed.
void MakeLayers(const Digest& round_id, uint32_t party, size_t layers, const Recipient& recipient,
                Items ephemeral_secrets, Items messages, MutableItems boxes, MutableItems seeds,
                size_t n) {
  const Info info = InfoFor(AeadOf(layers), round_id, party);
  if (layers == 1 || boxes.data == nullptr) {
    ExportBatch(recipient, info, kLayerSeed, ephemeral_secrets, boxes, seeds, n);
  } else {
    SealBatch(recipient, info, kLayerSeed, ephemeral_secrets, messages, boxes, seeds, n);
  }
}

}  // namespace

void BuildOnions(const Digest& round_id, uint32_t first_party,
                 std::span<const Recipient> recipients, BytesView ephemeral_secrets,
                 MutableBytes seeds, MutableBytes onions) {
  const size_t layers = recipients.size();
  if (layers == 0) return;
  const size_t n = ephemeral_secrets.size() / (layers * 32);
  const size_t bytes = OnionBytes(layers);
  SHOAL_CHECK(first_party > 1 && ephemeral_secrets.size() == n * layers * 32);
  SHOAL_CHECK(seeds.size() == ephemeral_secrets.size());
  SHOAL_CHECK(onions.empty() || onions.size() == n * bytes);

  // Layer l of an onion is its tail but for the tags of the layers around it, which follow it:
  // each layer is sealed in place around the one before.
  for (size_t l = layers; l-- > 0;) {
    const Items secrets = {ephemeral_secrets.data() + l * 32, layers * 32, 32};
    const MutableItems exports = {seeds.data() + l * kSeedBytes, layers * kSeedBytes, kSeedBytes};
    uint8_t* const box = onions.empty() ? nullptr : onions.data() + kEncBytes * l;
    const uint8_t* const message = box == nullptr ? nullptr : box + kEncBytes;
    const size_t left = layers - l;
    MakeLayers(round_id, first_party + static_cast<uint32_t>(l), left, recipients[l], secrets,
               {message, bytes, OnionBytes(left - 1)}, {box, bytes, OnionBytes(left)}, exports, n);
  }
}

Bytes AddLayer(const Digest& round_id, uint32_t party, const Recipient& recipient,
               BytesView ephemeral_secret, BytesView inner, MutableBytes seed) {
  SHOAL_CHECK(party > 1 && ephemeral_secret.size() == 32 && seed.size() == kSeedBytes);
  Bytes layer(inner.empty() ? kEncBytes : inner.size() + kSealBytes);
  MakeLayers(round_id, party, inner.empty() ? 1 : 2, recipient, {ephemeral_secret.data(), 32, 32},
             {inner.data(), inner.size(), inner.size()}, {layer.data(), layer.size(), layer.size()},
             {seed.data(), kSeedBytes, kSeedBytes}, 1);
  return layer;
}

void PeelOnions(const KeyPair& key, const Digest& round_id, uint32_t party, size_t layers,
                BytesView onions, MutableBytes seeds, MutableBytes inner,
                std::span<uint8_t> valid) {
  SHOAL_CHECK(layers > 0 && party > 1);
  const size_t n = valid.size(), bytes = OnionBytes(layers), inner_bytes = OnionBytes(layers - 1);
  SHOAL_CHECK(onions.size() == n * bytes && seeds.size() == n * kSeedBytes &&
              inner.size() == n * inner_bytes);
  const Info info = InfoFor(AeadOf(layers), round_id, party);
  const Items items = {onions.data(), bytes, bytes};
  const MutableItems exports = {seeds.data(), kSeedBytes, kSeedBytes};
  if (layers == 1) {
    DecapsulateBatch(key, info, kLayerSeed, items, exports, valid);
  } else {
    OpenBatch(key, info, kLayerSeed, items, {inner.data(), inner_bytes, inner_bytes}, exports,
              valid);
  }
}

void SealSubmissions(const Recipient& party_1, const Digest& round_id,
                     std::span<const SubmissionToSeal> submissions) {
  const Info info = InfoFor(Aead::kChaCha20Poly1305, round_id, 1);
  for (size_t begin = 0; begin < submissions.size(); begin += kBatch) {
    const auto batch = submissions.subspan(begin, std::min(kBatch, submissions.size() - begin));
    SecretVector<uint8_t> secrets;
    for (const SubmissionToSeal& item : batch) {
      SHOAL_CHECK(item.ephemeral_secret.size() == 32);
      secrets.insert(secrets.end(), item.ephemeral_secret.begin(), item.ephemeral_secret.end());
    }
    Bytes encs(batch.size() * kEncBytes);
    std::vector<Context> contexts(batch.size());
    SenderContexts(party_1, info, {secrets.data(), 32, 32}, {encs.data(), kEncBytes, kEncBytes},
                   contexts);
    for (size_t i = 0; i < batch.size(); ++i) {
      const SubmissionToSeal& item = batch[i];
      if (!item.submission.empty()) {
        SHOAL_CHECK(item.submission.size() == item.onions.size() + kSealBytes);
        std::copy_n(encs.begin() + static_cast<ptrdiff_t>(i * kEncBytes), kEncBytes,
                    item.submission.begin());
        Seal(contexts[i], item.onions, item.submission.subspan(kEncBytes));
      }
      ExportNumbered(contexts[i], kSlotSeed, item.first, item.seeds);
    }
  }
}

void OpenSubmissions(const KeyPair& key, const Digest& round_id,
                     std::span<SubmissionToOpen> submissions) {
  const Info info = InfoFor(Aead::kChaCha20Poly1305, round_id, 1);
  for (size_t begin = 0; begin < submissions.size(); begin += kBatch) {
    const auto batch = submissions.subspan(begin, std::min(kBatch, submissions.size() - begin));
    Bytes encs;
    for (const SubmissionToOpen& item : batch) {
      SHOAL_CHECK(item.submission.size() == item.onions.size() + kSealBytes);
      SHOAL_CHECK(item.seeds.size() % kSeedBytes == 0);
      encs.insert(encs.end(), item.submission.begin(), item.submission.begin() + kEncBytes);
    }
    std::vector<Context> contexts(batch.size());
    Bytes alive(batch.size());
    RecipientContexts(key, info, {encs.data(), kEncBytes, kEncBytes}, contexts, alive);
    for (size_t i = 0; i < batch.size(); ++i) {
      SubmissionToOpen& item = batch[i];
      item.opened = alive[i] && Open(contexts[i], item.submission.subspan(kEncBytes), item.onions);
      if (item.opened) {
        ExportNumbered(contexts[i], kSlotSeed, 0, item.seeds);
      } else {
        std::ranges::fill(item.onions, 0);
        std::ranges::fill(item.seeds, 0);
      }
    }
  }
}

}  // namespace shoal::onion
