#include "src/pir/counter_stream.h"

namespace shoal::pir {

std::vector<const CounterStream*> SupportedStreams() {
  std::vector<const CounterStream*> streams;
  if (Vaes256Stream() != nullptr) streams.push_back(Vaes256Stream());
  if (Vaes512Stream() != nullptr) streams.push_back(Vaes512Stream());
  return streams;
}

const CounterStream* FastestStream() {
  static const CounterStream* const stream =
      SupportedStreams().empty() ? nullptr : SupportedStreams().back();
  return stream;
}

}  // namespace shoal::pir
