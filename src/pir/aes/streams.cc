#include "src/pir/aes/streams.h"

namespace shoal::pir {

std::vector<const CounterStream*> SupportedStreams() {
  std::vector<const CounterStream*> streams;
  for (const CounterStream* stream : {AesNiStream(), Vaes256Stream(), Vaes512Stream()}) {
    if (stream != nullptr) streams.push_back(stream);
  }
  return streams;
}

}  // namespace shoal::pir
