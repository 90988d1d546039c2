// Of a log with several GPUs, what is of the job.
//
// nvidia-smi lists every GPU of a machine. The job's are the fullest, as many as it has. Memory,
// power and load are then the fullest one's; the link is the narrowest of the job's, the one that
// the others wait for. Where the log has no memory, all GPUs are the job's.
#pragma once

#include <string>

#include "sim/logs/log.h"

namespace offsim::study {

// `log` without the figures of all other GPUs; `said`: a sentence on that, empty where there is
// one.
struct OneGpu {
  logs::Log log;
  std::string said;
};
OneGpu one_gpu(logs::Log log, std::size_t gpus_of_job);

}  // namespace offsim::study
