#include "kernels/records.h"

#include <cerrno>
#include <cstring>
#include <ctime>
#include <ostream>

namespace offsim::kernels {

void write_line(const std::string& line, std::ostream& out) {
  errno = 0;
  out << line + "\n";
  if (!out.flush()) {
    const std::string reason = errno == 0 ? "" : std::string(": ") + std::strerror(errno);
    throw UserError("the records cannot be written" + reason);
  }
}

std::string utc_now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace offsim::kernels
