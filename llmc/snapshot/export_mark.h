/* How exported files are told from others. Readers of both formats pass over it: safetensors' metadata is
 * free text beside `format`, and llm.c reads the first 8 of its header's 256 integers. */
#ifndef LLMC_SNAPSHOT_EXPORT_MARK_H
#define LLMC_SNAPSHOT_EXPORT_MARK_H

#define EXPORT_MARK_KEY "exported_by"
#define EXPORT_MARK "train_gpt2"
enum { EXPORT_MARK_LLMC_INDEX = 255, EXPORT_MARK_LLMC = 0x32747067 /* "gpt2" */ };

#endif
