// A fake frontend for clients in other languages: `fake_frontend_main PINS [REFRESHES]` writes the
// pins to the file PINS, prints its address, and serves a round until its standard input ends, one
// with a term if REFRESHES is not 0. The table has the keys key-0 to key-299.
#include <iostream>
#include <mutex>
#include <string>

#include "absl/strings/numbers.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/client/testing/tls_frontend.h"
#include "src/roster/roster.h"
#include "src/wire/text.h"

int main(int argc, char** argv) {
  using shoal::client::testing::TlsFrontend;
  uint32_t refreshes = 0;
  SHOAL_CHECK(argc == 2 || (argc == 3 && absl::SimpleAtoi(argv[2], &refreshes)));
  TlsFrontend server({.now_s = shoal::SystemClock().NowSeconds(), .refreshes = refreshes});
  const auto pins = shoal::roster::PinsOf(server.frontend().roster().wire().roster());
  SHOAL_CHECK(pins.ok() && shoal::wire::WriteTextFile(argv[1], *pins).ok());
  {
    const std::lock_guard lock(server.mutex());
    server.frontend().OpenRound();
  }
  std::cout << server.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
