#include "src/server/machine_messages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/byte_source.h"
#include "src/base/status_macros.h"

namespace shoal::server {

using machines::Machines;

absl::Status Unannounced(uint32_t from) {
  return absl::DataLossError(absl::StrCat("machine ", from, " sent what it had not announced"));
}

absl::StatusOr<std::vector<SecretVector<uint64_t>>> GatherNumbers(Machines& machines,
                                                                  absl::string_view stage,
                                                                  std::span<const uint64_t> mine) {
  SecretVector<uint8_t> message(8 * mine.size());
  for (size_t i = 0; i < mine.size(); ++i) StoreLe(message.data() + 8 * i, mine[i]);
  SHOAL_ASSIGN_OR_RETURN(const auto all, machines.Gather(stage, message, message.size()));
  std::vector<SecretVector<uint64_t>> numbers(all.size());
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != message.size()) return Unannounced(rank);
    for (size_t i = 0; i < mine.size(); ++i) {
      numbers[rank].push_back(LoadLe<uint64_t>(all[rank].data() + 8 * i));
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<SecretVector<uint8_t>>> ExchangeBytes(
    Machines& machines, absl::string_view stage, std::vector<SecretVector<uint8_t>> to,
    std::span<const uint64_t> most_to, std::span<const uint64_t> most_from) {
  std::vector<ViewSource> sources(to.begin(), to.end());
  std::vector<Machines::Outgoing> outgoing;
  for (size_t j = 0; j < to.size(); ++j) outgoing.push_back({&sources[j], most_to[j]});
  std::vector<SecretVector<uint8_t>> came(to.size());
  SHOAL_RETURN_IF_ERROR(
      machines.Exchange(stage, outgoing, most_from, [&](uint32_t from, BytesView piece) {
        came[from].insert(came[from].end(), piece.begin(), piece.end());
        return absl::OkStatus();
      }));
  came[machines.rank()] = std::move(to[machines.rank()]);
  return came;
}

}  // namespace shoal::server
