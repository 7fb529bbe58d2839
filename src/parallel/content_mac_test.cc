#include "src/parallel/content_mac.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "openssl/core_names.h"
#include "openssl/evp.h"
#include "src/base/hash.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/test_random.h"

namespace shoal {
namespace {

using ::shoal::testing::TestRandom;

constexpr char kDomain[] = "test of content";

Bytes Draw(uint64_t seed, size_t n) {
  TestRandom random(seed);
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

Digest StreamOf(const ContentMac& mac, BytesView content) {
  ContentMac::Stream stream(mac);
  stream.Update(content);
  return stream.Finish();
}

// OpenSSL's own GMAC in one call.
Bytes Gmac(BytesView key, BytesView nonce, BytesView content) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "GMAC", nullptr);
  EVP_MAC_CTX* context = EVP_MAC_CTX_new(mac);
  char cipher[] = "AES-256-GCM";
  Bytes iv = ToBytes(nonce);
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_CIPHER, cipher, 0),
      OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_IV, iv.data(), iv.size()),
      OSSL_PARAM_construct_end()};
  Bytes tag(16);
  size_t written = 0;
  EXPECT_EQ(EVP_MAC_init(context, key.data(), key.size(), parameters), 1);
  EXPECT_EQ(EVP_MAC_update(context, content.data(), content.size()), 1);
  EXPECT_EQ(EVP_MAC_final(context, tag.data(), &written, tag.size()), 1);
  EXPECT_EQ(written, tag.size());
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(mac);
  return tag;
}

// A digest on disk may outlive the program that wrote it, so it must follow the definition in the
// header.
TEST(ContentMacTest, IsWhatTheHeaderDefines) {
  const Bytes key = Draw(1, 32), content = Draw(2, 1000);
  const ContentMac mac(key, kDomain, 256);
  const Digest chunk_key = Transcript("shoal content mac chunks v1", key).Blob(kDomain).Finish();
  const Digest combine_key = Transcript("shoal content mac combine v1", key).Blob(kDomain).Finish();
  Bytes tags;
  for (uint8_t i = 0; i < 4; ++i) {
    const Bytes nonce = {i, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const size_t at = size_t{256} * i;
    const BytesView chunk =
        BytesView(content).subspan(at, std::min<size_t>(256, content.size() - at));
    const Bytes tag = Gmac(chunk_key, nonce, chunk);
    const ContentMac::Tag mine = mac.ChunkTag(i, chunk);
    EXPECT_EQ(Bytes(mine.begin(), mine.end()), tag) << "chunk " << int{i};
    Append(tags, tag);
  }
  EXPECT_EQ(StreamOf(mac, content), Transcript("shoal content mac v1", combine_key)
                                        .U64(256)
                                        .U64(content.size())
                                        .Blob(tags)
                                        .Finish());
}

// Parties of one deployment, and a party before and after it moved, have different processors.
TEST(ContentMacTest, EveryInstructionSetGivesTheSameTags) {
  const InstructionSet before = ActiveInstructionSet();
  const Bytes key = Draw(1, 32), content = Draw(8, 5000);
  TestRandom random(9);
  UseInstructionSet(InstructionSet::kPortable);
  const ContentMac portable(key, kDomain, content.size());
  for (const InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    const ContentMac mac(key, kDomain, content.size());
    // A kernel takes 64 blocks at a time, then four, then what is left.
    for (size_t bytes = 1; bytes <= content.size(); bytes += bytes < 150 ? 1 : 37) {
      const BytesView chunk = BytesView(content).first(bytes);
      ASSERT_EQ(mac.ChunkTag(bytes, chunk), portable.ChunkTag(bytes, chunk))
          << NameOf(set) << ", " << bytes << " bytes";
      ContentMac::Stream stream(mac);
      for (size_t at = 0; at < bytes;) {
        const size_t piece = std::min<size_t>(random.Below(600), bytes - at);
        stream.Update(chunk.subspan(at, piece));
        at += piece;
      }
      ASSERT_EQ(stream.Finish(), StreamOf(portable, chunk)) << NameOf(set) << ", " << bytes;
    }
    // Bits at both ends of the hash key and of blocks, where what falls out of a shift comes back.
    for (const uint8_t bits : {0x00, 0x01, 0x80, 0xff}) {
      ASSERT_EQ(mac.ChunkTag(0, Bytes(3000, bits)), portable.ChunkTag(0, Bytes(3000, bits)));
    }
    for (uint64_t seed = 10; seed < 40; ++seed) {
      UseInstructionSet(InstructionSet::kPortable);
      const ContentMac other(Draw(seed, 32), kDomain, content.size());
      UseInstructionSet(set);
      ASSERT_EQ(ContentMac(Draw(seed, 32), kDomain, content.size()).ChunkTag(0, content),
                other.ChunkTag(0, content));
    }
  }
  UseInstructionSet(before);
}

TEST(ContentMacTest, WhatIsMadeRangeByRangeIsDigestedAsItWasMade) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  ThreadPool three(3);
  TestRandom random(10);
  for (const size_t bytes : {1, 63, 64, 65, 640, 3000}) {
    const Bytes content = Draw(bytes, bytes);
    Bytes piece;
    ContentMac::Stream stream(mac);
    for (size_t at = 0; at < bytes; at += piece.size()) {
      piece.assign(std::min<size_t>(1 + random.Below(500), bytes - at), 0);
      stream.UpdateMade(piece, three, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) piece[i] ^= content[at + i];  // once each
      });
    }
    EXPECT_EQ(stream.Finish(), StreamOf(mac, content)) << bytes;
  }
}

TEST(ContentMacTest, SameHoweverItIsCutAndWhoeverComputesIt) {
  const ContentMac mac(Draw(1, 32), kDomain, 256);
  ThreadPool one(1), three(3);
  TestRandom random(3);
  for (size_t bytes : {0, 1, 15, 16, 17, 255, 256, 257, 511, 512, 513, 5000}) {
    const Bytes content = Draw(bytes, bytes);
    const Digest whole = StreamOf(mac, content);
    EXPECT_EQ(mac.Of(content, one), whole) << bytes;
    EXPECT_EQ(mac.Of(content, three), whole) << bytes;
    for (uint64_t longest : {1, 3, 100, 300, 2000}) {
      ContentMac::Stream stream(mac);
      for (size_t at = 0; at < bytes;) {
        const size_t piece = std::min<size_t>(random.Below(longest + 1), bytes - at);
        stream.Update(BytesView(content).subspan(at, piece));
        at += piece;
      }
      EXPECT_EQ(stream.Finish(), whole) << bytes << " in pieces of up to " << longest;
      ContentMac::Stream parallel(mac);
      for (size_t at = 0; at < bytes;) {
        const size_t piece = std::min<size_t>(random.Below(longest + 1), bytes - at);
        parallel.Update(BytesView(content).subspan(at, piece), three);
        at += piece;
      }
      EXPECT_EQ(parallel.Finish(), whole) << bytes << " in pieces of up to " << longest;
    }
    // Chunk by chunk, the last chunk first.
    std::vector<ContentMac::Tag> tags(mac.Chunks(bytes));
    for (size_t i = tags.size(); i-- > 0;) {
      tags[i] = mac.ChunkTag(
          i, BytesView(content).subspan(256 * i, std::min<size_t>(256, bytes - 256 * i)));
    }
    EXPECT_EQ(mac.Combine(bytes, tags), whole) << bytes;
  }
}

// Whoever has parts of a content makes the tags of the chunks that begin there; a part's first
// bytes may belong to a chunk of an earlier part, however short the parts are.
TEST(ContentMacTest, PartsTogetherAreTheWhole) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  ThreadPool three(3);
  TestRandom random(4);
  for (const size_t bytes : {1, 63, 64, 65, 500, 3000}) {
    const Bytes content = Draw(bytes, bytes);
    for (const uint64_t longest : {1, 10, 70, 900}) {
      struct Part {
        size_t begin, end;
        ContentMac::Stream stream;
      };
      std::vector<Part> parts;
      for (size_t at = 0; at < bytes;) {
        const size_t end = std::min<size_t>(bytes, at + random.Below(longest + 1));
        parts.push_back({at, end, ContentMac::Stream(mac, at)});
        parts.back().stream.Update(BytesView(content).subspan(at, end - at), three);
        at = end;
      }
      for (Part& part : parts) {
        const size_t here = std::min((part.begin + 63) / 64 * 64, part.end);
        EXPECT_TRUE(std::ranges::equal(part.stream.head(),
                                       BytesView(content).subspan(part.begin, here - part.begin)));
        if (here == part.begin) continue;
        // The chunk began in another part.
        std::ranges::find_if(parts, [&](const Part& other) {
          return part.begin / 64 * 64 < other.end;
        })->stream.Update(part.stream.head());
      }
      std::vector<ContentMac::Tag> tags;
      for (Part& part : parts) {
        const auto made = part.stream.FinishPart();
        tags.insert(tags.end(), made.begin(), made.end());
      }
      EXPECT_EQ(mac.Combine(bytes, tags), StreamOf(mac, content)) << bytes << " by " << longest;
    }
  }
}

// Streams of parts that follow each other, joined, are the stream of all of them.
TEST(ContentMacTest, JoinedPartsAreOnePart) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  TestRandom random(4);
  for (const size_t bytes : {1, 63, 64, 65, 500, 3000}) {
    const Bytes content = Draw(bytes, bytes);
    for (const uint64_t longest : {1, 10, 70, 900}) {
      const size_t first = random.Below(std::min<uint64_t>(bytes, 130));
      ContentMac::Stream whole(mac, first), joined(mac, first);
      whole.Update(BytesView(content).subspan(first));
      for (size_t at = first; at < bytes;) {
        const size_t end = std::min<size_t>(bytes, at + random.Below(longest + 1));
        ContentMac::Stream part(mac, at);
        part.Update(BytesView(content).subspan(at, end - at));
        joined.Join(std::move(part));
        at = end;
      }
      EXPECT_TRUE(std::ranges::equal(joined.head(), whole.head()));
      EXPECT_EQ(joined.FinishPart(), whole.FinishPart()) << bytes << " by " << longest;
    }
  }
}

TEST(ContentMacTest, EveryByteCounts) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  Bytes content = Draw(5, 200);
  std::set<Digest> seen = {StreamOf(mac, content)};
  for (size_t i = 0; i < content.size(); ++i) {
    for (uint8_t bit : {0x01, 0x80}) {
      content[i] ^= bit;
      EXPECT_TRUE(seen.insert(StreamOf(mac, content)).second) << "byte " << i;
      content[i] ^= bit;
    }
  }
}

TEST(ContentMacTest, LengthCounts) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  std::set<Digest> seen;
  for (size_t bytes = 0; bytes <= 300; ++bytes) {
    EXPECT_TRUE(seen.insert(StreamOf(mac, Bytes(bytes))).second) << bytes << " zeros";
  }
}

TEST(ContentMacTest, OrderOfChunksCounts) {
  const ContentMac mac(Draw(1, 32), kDomain, 64);
  const Bytes content = Draw(6, 64 * 4);
  const Digest whole = StreamOf(mac, content);
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < a; ++b) {
      Bytes swapped = content;
      std::swap_ranges(swapped.begin() + 64 * static_cast<std::ptrdiff_t>(a),
                       swapped.begin() + 64 * static_cast<std::ptrdiff_t>(a + 1),
                       swapped.begin() + 64 * static_cast<std::ptrdiff_t>(b));
      EXPECT_NE(StreamOf(mac, swapped), whole) << a << " " << b;
    }
  }
  // A tag alone also binds its chunk's number.
  const BytesView chunk = BytesView(content).first(64);
  EXPECT_NE(mac.ChunkTag(0, chunk), mac.ChunkTag(1, chunk));
  EXPECT_NE(mac.ChunkTag(0, chunk), mac.ChunkTag(uint64_t{1} << 32, chunk));
}

TEST(ContentMacTest, KeyDomainAndChunkSizeCount) {
  const Bytes key = Draw(1, 32), content = Draw(7, 1000);
  std::set<Digest> seen = {StreamOf(ContentMac(key, kDomain, 64), content)};
  for (size_t i = 0; i < key.size(); ++i) {
    Bytes other = key;
    other[i] ^= 1;
    EXPECT_TRUE(seen.insert(StreamOf(ContentMac(other, kDomain, 64), content)).second) << i;
  }
  EXPECT_TRUE(seen.insert(StreamOf(ContentMac(key, "another", 64), content)).second);
  EXPECT_TRUE(seen.insert(StreamOf(ContentMac(key, kDomain, 128), content)).second);
  EXPECT_TRUE(seen.insert(StreamOf(ContentMac(key, kDomain, 2000), content)).second);
}

TEST(ContentMacDeathTest, RefusesWrongShapes) {
  const Bytes key(32);
  const ContentMac mac(key, kDomain, 64);
  const std::vector<ContentMac::Tag> two(2);
  EXPECT_DEATH(ContentMac(Bytes(31), kDomain), "key.size");
  EXPECT_DEATH(ContentMac(key, kDomain, 0), "chunk_bytes");
  EXPECT_DEATH(mac.ChunkTag(0, {}), "empty");
  EXPECT_DEATH(mac.ChunkTag(0, Bytes(65)), "chunk_bytes_");
  EXPECT_DEATH(mac.Combine(64, two), "Chunks");
  EXPECT_DEATH(mac.Combine(129, two), "Chunks");
}

}  // namespace
}  // namespace shoal
