/* The model card: what stands on the page of a model, README.md of its folder. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "llmc/base/format.h"
#include "llmc/base/memory.h"
#include "llmc/snapshot/export_files.h"

enum { CARD_BYTES_MAX = 4096 };

static void add(char *card, const char *format, ...) PRINTF_LIKE(2, 3);

static void add(char *card, const char *format, ...)
{
    size_t used = strlen(card);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(card + used, CARD_BYTES_MAX - used, format, arguments);
    va_end(arguments);
}

static void add_count(char *card, const char *what, int64_t count)
{
    char text[FORMAT_COUNT_BYTES];
    add(card, "| %s | %s |\n", what, format_count(text, count));
}

static void add_training(char *card, const ExportFacts *facts)
{
    if (facts->updates > 0) {
        add_count(card, "updates", facts->updates);
        add_count(card, "tokens in each update", facts->update_tokens);
        add_count(card, "tokens seen", facts->updates * facts->update_tokens);
    }
    if (isfinite(facts->val_loss)) {
        add(card, "| validation loss | %.4f |\n", facts->val_loss);
    }
    if (isfinite(facts->best_loss)) {
        add(card, "| lowest validation loss on the way | %.4f |\n", facts->best_loss);
    }
}

char *export_card(const ModelShape *shape, const Characters *characters, const ExportFacts *facts)
{
    char *card = memory_alloc(CARD_BYTES_MAX, 1, "model card");
    int has_tokenizer = characters || export_is_gpt2_vocabulary(shape, NULL);
    card[0] = '\0';
    add(card,
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- "
        "gpt2\n---\n" EXPORT_CARD_MARK
        "\n\n# GPT-2 with %d layers of %d\n\nTrained with train_gpt2, in C and CUDA.\n\n| | |\n|---|---|\n",
        shape->n_layer, shape->n_embd);
    add_count(card, "parameters", model_shape_parameters(shape));
    add_count(card, "layers", shape->n_layer);
    add_count(card, "heads", shape->n_head);
    add_count(card, "channels", shape->n_embd);
    add_count(card, "tokens at most in a text", shape->block_size);
    add_count(card, "vocabulary", shape->vocab_size);
    if (facts) {
        add_training(card, facts);
    }
    add(card,
        "\n## Use\n\n```python\nfrom transformers import %s\n\n"
        "model = AutoModelForCausalLM.from_pretrained(\"FOLDER\")\n",
        has_tokenizer ? "AutoModelForCausalLM, AutoTokenizer" : "AutoModelForCausalLM");
    if (has_tokenizer) {
        add(card,
            "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n"
            "tokens = tokenizer(\"Once upon a time\", return_tensors=\"pt\")\n"
            "print(tokenizer.decode(model.generate(**tokens, max_new_tokens=50, do_sample=True)[0]))\n");
    }
    add(card, "```\n\nFOLDER is this folder. train_gpt2 goes on from it with `--init_from=FOLDER`.\n");
    return card;
}
