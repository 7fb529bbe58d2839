// Numbers and sizes as text for people.
#ifndef SHOAL_SRC_CLIENT_SIZE_TEXT_H_
#define SHOAL_SRC_CLIENT_SIZE_TEXT_H_

#include <cstdint>
#include <string>

namespace shoal::client {

// "12,345".
std::string WithCommas(uint64_t number);
// "1.2 MB".
std::string BytesText(double bytes);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_SIZE_TEXT_H_
