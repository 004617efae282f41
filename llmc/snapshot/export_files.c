#include "llmc/snapshot/export_files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "llmc/base/memory.h"
#include "llmc/snapshot/export_vocabulary.h"

void export_files_add(ExportFiles *files, const char *name, char *text)
{
    CHECK(files->count < EXPORT_FILES_MAX, "%s: more than %d files", name, EXPORT_FILES_MAX);
    files->items[files->count++] = (ExportFile){.name = name, .text = text, .bytes = strlen(text)};
}

/* Takes `object` over. Whole numbers, 1e-05 and 0.02 are all that is in it. */
static void add_json(ExportFiles *files, const char *name, json_t *object)
{
    CHECK(object, "out of memory for %s", name);
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    CHECK(text, "out of memory for %s", name);
    json_decref(object);
    export_files_add(files, name, memory_copy_text(text, name));
    free(text);
}

int export_is_gpt2_vocabulary(const ModelShape *shape, const Characters *characters)
{
    return !characters && shape->vocab_size >= EXPORT_VOCABULARY_TOKENS;
}

/* <|endoftext|>, if tokens are GPT-2's. */
static json_t *end_of_text(int is_gpt2_vocabulary)
{
    return is_gpt2_vocabulary ? json_integer(EXPORT_VOCABULARY_TOKENS - 1) : json_null();
}

/* What transformers' GPT2Config needs to build this model, the rest being its default; and n_ctx, its name of
 * old for n_positions, which llama.cpp's converter asks for. */
static json_t *config(const ModelShape *shape, int is_gpt2_vocabulary)
{
    return json_pack(
        "{s:[s], s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:n, s:f, s:f, s:b, s:b, s:s, s:o, s:o}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new",
        "vocab_size", shape->vocab_size, "n_positions", shape->block_size, "n_ctx", shape->block_size,
        "n_embd", shape->n_embd, "n_layer", shape->n_layer, "n_head", shape->n_head, "n_inner",
        "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "scale_attn_weights", 1, "tie_word_embeddings",
        1, "torch_dtype", "float32", "bos_token_id", end_of_text(is_gpt2_vocabulary), "eos_token_id",
        end_of_text(is_gpt2_vocabulary));
}

/* What `generate` of transformers does without arguments: it ends at <|endoftext|>. */
static json_t *generation_config(int is_gpt2_vocabulary)
{
    return json_pack("{s:o, s:o}", "bos_token_id", end_of_text(is_gpt2_vocabulary), "eos_token_id",
                     end_of_text(is_gpt2_vocabulary));
}

void export_files_init(ExportFiles *files, const ModelShape *shape, const Characters *characters,
                       const ExportFacts *facts)
{
    int is_gpt2_vocabulary = export_is_gpt2_vocabulary(shape, characters);
    *files = (ExportFiles){.count = 0};
    add_json(files, "config.json", config(shape, is_gpt2_vocabulary));
    add_json(files, "generation_config.json", generation_config(is_gpt2_vocabulary));
    if (characters) {
        export_files_add_characters(files, shape, characters);
    } else if (is_gpt2_vocabulary) {
        export_files_add_tokenizer(files, shape);
    }
    export_files_add(files, EXPORT_CARD_NAME, export_card(shape, characters, facts));
}

void export_files_release(ExportFiles *files)
{
    for (int i = 0; i < files->count; i++) {
        memory_free(files->items[i].text);
    }
    files->count = 0;
}
