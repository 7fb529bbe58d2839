// Where the door's frontend is. It is a header by itself, as the one of the links to it
// (frontend_links.h) brings all of asio.
#ifndef SHOAL_SRC_DOOR_FRONTEND_OPTIONS_H_
#define SHOAL_SRC_DOOR_FRONTEND_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "src/base/bytes.h"

namespace shoal::door {

struct FrontendOptions {
  std::string address;  // host:port
  Digest pin;           // of the frontend's certificate
  size_t max_links = 1024;
  // After which a connection without a request is not used again. The frontend's own limit is
  // five minutes.
  std::chrono::seconds rest{60};
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_FRONTEND_OPTIONS_H_
