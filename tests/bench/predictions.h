// Benchmarks of whole predictions, registered beside the engine's.
#pragma once

// In process: record, lower, simulate and explain Qwen2.5-72B on one GH200, range included, at most
// 20 ms. As a command: the program from its start to its text, catalog read, at most 60 ms.
void register_predictions();
