// The streams that this processor can run.
#ifndef SHOAL_SRC_PIR_AES_STREAMS_H_
#define SHOAL_SRC_PIR_AES_STREAMS_H_

#include <vector>

#include "src/pir/aes/counter_stream.h"

namespace shoal::pir {

// The slowest first. There may be none.
std::vector<const CounterStream*> SupportedStreams();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_AES_STREAMS_H_
