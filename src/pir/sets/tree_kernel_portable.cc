// Nothing but what every processor has; OpenSSL chooses how it computes AES.
#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/base/check.h"
#include "src/pir/sets/tree_kernel.h"
#include "src/pir/sets/tree_kernel_impl.h"

namespace shoal::pir::sets {
namespace {

constexpr size_t kBlock = TreeKernel::kBlockBytes;

void Add(const uint8_t* a, const uint8_t* b, size_t bytes, uint8_t* out) {
  for (; bytes >= 8; bytes -= 8, a += 8, b += 8, out += 8) {
    uint64_t x, y;
    std::memcpy(&x, a, 8);
    std::memcpy(&y, b, 8);
    x ^= y;
    std::memcpy(out, &x, 8);
  }
  for (size_t i = 0; i < bytes; ++i) out[i] = a[i] ^ b[i];
}

void Expand(const uint8_t* nodes, size_t count, uint64_t first, size_t blocks, uint8_t* out) {
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  const std::unique_ptr<EVP_CIPHER_CTX, Free> context(EVP_CIPHER_CTX_new());
  SHOAL_CHECK(context != nullptr &&
              EVP_EncryptInit_ex(context.get(), EVP_aes_128_ecb(), nullptr, kTreeRoundKeys[0],
                                 nullptr) == 1 &&
              EVP_CIPHER_CTX_set_padding(context.get(), 0) == 1);
  constexpr size_t kTogether = 64;
  uint8_t in[kTogether * kBlock], encrypted[kTogether * kBlock];
  for (size_t done = 0, total = count * blocks; done < total;) {
    const size_t now = std::min(kTogether, total - done);
    for (size_t i = 0; i < now; ++i) {
      const uint64_t number = first + (done + i) % blocks;
      uint64_t low;
      std::memcpy(in + i * kBlock, nodes + (done + i) / blocks * kBlock, kBlock);
      std::memcpy(&low, in + i * kBlock, 8);
      low ^= number;
      std::memcpy(in + i * kBlock, &low, 8);
    }
    int written = 0;
    SHOAL_CHECK(EVP_EncryptUpdate(context.get(), encrypted, &written, in,
                                  static_cast<int>(now * kBlock)) == 1 &&
                static_cast<size_t>(written) == now * kBlock);
    Add(encrypted, in, now * kBlock, out + done * kBlock);
    done += now;
  }
  OPENSSL_cleanse(in, sizeof in);
  OPENSSL_cleanse(encrypted, sizeof encrypted);
}

void Leaves(const uint8_t* roots, size_t count, const uint32_t* numbers, size_t levels,
            uint32_t word, uint32_t mask, uint32_t* out) {
  constexpr size_t kTogether = 64;
  uint8_t nodes[2][kTogether * kBlock];
  while (count > 0) {
    const size_t now = std::min(kTogether, count);
    const uint8_t* from = roots;
    for (size_t level = 0; level < levels; ++level) {
      Expand(from, now, numbers[level], 1, nodes[level % 2]);
      from = nodes[level % 2];
    }
    for (size_t i = 0; i < now; ++i) {
      std::memcpy(&out[i], from + i * kBlock + 4 * word, 4);
      out[i] &= mask;
    }
    roots += now * kBlock;
    out += now;
    count -= now;
  }
  OPENSSL_cleanse(nodes, sizeof nodes);
}

void SumRows(const RowSums& job, uint8_t* sums) {
  for (size_t s = 0; s < job.sums; ++s) {
    for (size_t t = 0; t < job.each; ++t) {
      const uint8_t* record = job.rows + s * job.step_bytes + t * job.chunk_bytes +
                              size_t{job.offsets[s * job.stride + t]} * job.record_bytes;
      uint8_t* sum = sums + s * job.record_bytes;
      Add(sum, record, job.record_bytes, sum);
    }
  }
}

}  // namespace

const TreeKernel& PortableTreeKernel() {
  static constexpr TreeKernel kKernel = {.name = "portable",
                                         .expand = Expand,
                                         .leaves = Leaves,
                                         .sum_rows = SumRows,
                                         .find = FindLeaf,
                                         .add = Add};
  return kKernel;
}

std::vector<const TreeKernel*> SupportedTreeKernels() {
  std::vector<const TreeKernel*> kernels = {&PortableTreeKernel()};
  for (const TreeKernel* kernel : {Avx2TreeKernel(), Avx512TreeKernel()}) {
    if (kernel != nullptr) kernels.push_back(kernel);
  }
  return kernels;
}

const TreeKernel& FastestTreeKernel() {
  static const TreeKernel& kernel = *SupportedTreeKernels().back();
  return kernel;
}

}  // namespace shoal::pir::sets
