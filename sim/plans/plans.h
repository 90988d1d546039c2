// The plans that registry.cpp lists: for each, what it refuses or warns of, and its training loop.
#pragma once

#include <string>
#include <vector>

#include "sim/plans/job.h"
#include "sim/runtime/recorder.h"

namespace offsim::plans {

std::vector<std::string> check_native(const Job& job);
void record_native(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<std::string> check_zero2_offload(const Job& job);
void record_zero2_offload(const Job& job, runtime::Recorder& gpu, int steps);
bool zero2_meets_next(const Job& job);

std::vector<OptionSpec> zenflow_options();
std::vector<std::string> check_zenflow(const Job& job);
void record_zenflow(const Job& job, runtime::Recorder& gpu, int steps);
bool zenflow_meets_next(const Job& job);

std::vector<std::string> check_megatrain(const Job& job);
void record_megatrain(const Job& job, runtime::Recorder& gpu, int steps);

// Stage 3 with offload_optimizer and offload_param on `tier` unless they are given.
std::vector<OptionSpec> zero3_options(std::string_view tier);
bool is_of_drive(std::string_view option);  // of them, without effect where nothing is on NVMe
std::vector<std::string> check_zero3_offload(const Job& job);
void record_zero3_offload(const Job& job, runtime::Recorder& gpu, int steps);

// zero-infinity, whose step it records, with components of its own.
std::vector<OptionSpec> memascend_options();
std::vector<std::string> check_memascend(const Job& job);

std::vector<OptionSpec> ratel_options();
std::vector<std::string> check_ratel(const Job& job);
void record_ratel(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> teraio_options();
std::vector<std::string> check_teraio(const Job& job);
void record_teraio(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> superoffload_options();
std::vector<std::string> check_superoffload(const Job& job);
void record_superoffload(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> fsdp2_options();
std::vector<std::string> check_fsdp2_offload(const Job& job);
void record_fsdp2_offload(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> torchao_options();
std::vector<std::string> check_torchao_offload(const Job& job);
void record_torchao_offload(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> coherent_options();
std::vector<std::string> check_coherent_offload(const Job& job);
void record_coherent_offload(const Job& job, runtime::Recorder& gpu, int steps);

std::vector<OptionSpec> mlx_options();
std::vector<std::string> check_mlx(const Job& job);
void record_mlx(const Job& job, runtime::Recorder& gpu, int steps);

}  // namespace offsim::plans
