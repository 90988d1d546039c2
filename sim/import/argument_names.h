// The names that a launch command may hold, so that a slip of the hand is told from an argument
// that changes nothing here: those of Hugging Face's Trainer, of its launchers, and of the programs
// that hand theirs on to it.
//
// Left out: arguments of programs that people write themselves, which are warned of as unknown.
#pragma once

#include <functional>
#include <set>
#include <string>

namespace offsim::imports {

const std::set<std::string, std::less<>>& argument_names();

}  // namespace offsim::imports
