// The one-line message of the InputError that `action` throws; says so when it throws none.
#pragma once

#include <string>

#include "sim/base/error.h"

namespace offsim {

template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "(nothing was refused)";
}

}  // namespace offsim
