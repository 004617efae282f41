/* What an unknown option may have meant: first by meaning, from what other trainers call it, then by its
 * letters, where they are really close. */
#include <stdio.h>
#include <string.h>

#include "llmc/run/option_table.h"

enum { NAME_BYTES = 64 };

/* Options, and names of theirs elsewhere: llm.c's train_gpt2.cu (with one dash) and train_gpt2.py, Hugging
 * Face's Trainer and model configs, PyTorch Lightning, Megatron, and what people try. Dashes, underscores and
 * capitals do not matter. */
static const struct {
    const char *option;
    const char *others; /* parted by blanks */
} meanings[] = {
    {"out_dir", "output_dir output_log_dir output save_dir save checkpoint_dir ckpt_dir log_dir "
                "logging_dir run_dir -o"},
    {"init_from", "resume_from_checkpoint resume resume_from load load_from load_filename model "
                  "model_name model_name_or_path model_path checkpoint ckpt ckpt_path pretrained "
                  "from_pretrained weights -e -y"},
    {"eval_only", "do_eval inference_only evaluate evaluate_only validate only_eval"},
    {"sample_only", "generate do_predict inference"},
    {"max_iters", "steps max_steps num_steps n_steps train_steps training_steps total_steps "
                  "num_train_steps num_training_steps iters num_iters n_iters train_iters "
                  "iterations num_iterations max_iterations updates -x"},
    {"eval_interval", "eval_steps eval_every eval_freq val_interval val_every val_loss_every "
                      "val_check_interval test_interval validation_interval -v"},
    {"eval_iters", "val_max_steps max_eval_steps eval_batches val_batches val_iters "
                   "limit_val_batches num_eval_batches -m"},
    {"log_interval", "logging_steps log_every log_every_n_steps log_freq print_every print_interval"},
    {"snapshot_interval", "save_steps save_interval save_every save_freq checkpoint_every "
                          "checkpoint_interval checkpoint_steps ckpt_interval ckpt_every "
                          "snapshot_every -n"},
    {"keep_snapshots", "save_total_limit checkpoints_keep keep_checkpoints max_checkpoints save_top_k -nk"},
    {"milestone_interval", "major_checkpoint_every -nm"},
    {"seed", "random_seed data_seed manual_seed rng_seed random_state seeds"},
    {"dataset", "dataset_name data_dir data_path data data_name"},
    {"train_data", "train_file train_path train_bin train_files input_bin train_data_pattern "
                   "training_data -i"},
    {"val_data", "validation_file val_file val_path val_bin eval_file eval_data eval_dataset "
                 "input_val_bin val_data_pattern validation_data -j"},
    {"max_epochs", "epochs epoch num_epochs n_epochs num_train_epochs"},
    {"batch_size", "per_device_train_batch_size per_device_eval_batch_size per_gpu_train_batch_size "
                   "micro_batch_size device_batch_size train_batch_size "
                   "eval_batch_size mbs bs batch -b"},
    {"block_size", "sequence_length seq_len seq_length max_seq_len max_seq_length max_length "
                   "context_length context_size context_window context ctx_len n_ctx n_positions "
                   "max_position_embeddings block -t"},
    {"gradient_accumulation_steps", "grad_accum grad_accum_steps grad_acc_steps accumulation_steps "
                                    "accumulate_grad_batches gradient_accumulation accum_steps "
                                    "num_microbatches"},
    {"n_layer", "num_layers num_hidden_layers num_layer layers depth"},
    {"n_head", "num_heads num_attention_heads num_head heads attention_heads"},
    {"n_embd", "n_embed n_embedding hidden_size d_model hidden_dim embed_dim embedding_dim emb_dim dim "
               "model_dim channels width"},
    {"vocab_size", "vocab n_vocab padded_vocab_size vocabulary_size num_tokens"},
    {"dropout", "dropout_rate dropout_prob dropout_p resid_pdrop embd_pdrop attn_pdrop hidden_dropout "
                "attention_dropout hidden_dropout_prob"},
    {"learning_rate", "lr max_lr peak_lr base_lr init_lr learning_rate_max max_learning_rate eta -l"},
    {"lr_schedule", "lr_scheduler_type lr_scheduler scheduler scheduler_type schedule lr_decay_style "
                    "lr_decay decay -k"},
    {"warmup_iters", "warmup warmup_steps num_warmup_steps lr_warmup_iters lr_warmup_steps "
                     "warmup_iterations n_warmup_steps warmup_updates -u"},
    {"lr_decay_iters", "lr_decay_steps decay_iters decay_steps cosine_steps t_max"},
    {"min_lr", "lr_min min_learning_rate minimum_lr final_lr end_lr lr_end eta_min"},
    {"weight_decay", "wd adam_weight_decay decay_weight l2 -c"},
    {"beta1", "adam_beta1 betas b1 momentum"},
    {"beta2", "adam_beta2 b2"},
    {"grad_clip", "gradient_clip max_grad_norm clip_grad clip_grad_norm grad_norm_clip grad_norm clip "
                  "clip_norm gradient_clip_val gradient_clipping clip_gradients max_norm"},
    {"dtype", "bf16 fp16 fp32 tf32 precision mixed_precision torch_dtype amp half"},
    {"reduce", "all_reduce reduction"},
    {"bucket_cap_mb", "ddp_bucket_cap_mb bucket_size_mb bucket_mb"},
    {"threads", "num_threads n_threads nproc num_workers workers cpus cores "
                "dataloader_num_workers"},
    {"comm_timeout", "ddp_timeout nccl_timeout timeout"},
    {"trace", "profile profiler"},
    {"start", "prompt prefix input_text start_text text"},
    {"num_samples", "n_samples samples num_return_sequences number_of_samples"},
    {"max_new_tokens", "max_tokens n_predict num_predict gen_tokens generate_tokens max_gen_len "
                       "new_tokens sample_tokens -g"},
    {"temperature", "temp"},
    {"export_hf", "export export_huggingface hf_export save_pretrained save_hf"},
    {"tensorboard", "tensorboard_dir use_tensorboard tb summary_writer"},
    {"hellaswag", "hellaswag_eval hellaswag_file"},
    {"export_llmc", "export_bin save_bin"},
};

/* Names whose meaning takes a sentence. */
static const struct {
    const char *names; /* parted by blanks */
    const char *way;
} notes[] = {
    {"total_batch_size global_batch_size effective_batch_size -d",
     "an update has gradient_accumulation_steps x batch_size x block_size tokens; set those"},
    {"warmup_ratio warmup_fraction warmup_frac",
     "warmup_iters takes a number of updates, not a part of the run"},
    {"min_lr_ratio min_lr_frac final_lr_frac final_learning_rate_frac learning_rate_decay_frac -q",
     "min_lr takes the rate itself, not a part of learning_rate"},
    {"top_p typical_p nucleus repetition_penalty num_beams", "samples are drawn with temperature and top_k"},
    {"adam_epsilon adam_eps eps epsilon", "AdamW's epsilon is 1e-8, and no option"},
    {"optimizer optim", "the optimizer is AdamW; weight_decay, beta1 and beta2 set it"},
    {"gpus ngpu num_gpus gpu nproc_per_node world_size num_processes num_nodes nnodes devices "
     "-pn -pr -pg",
     "the launcher starts one rank for each GPU: mpirun -np 8 ./train_gpt2cu .., or torchrun"},
    {"sample_every -s",
     "samples are drawn when the run ends (num_samples), or by sample_only from a snapshot"},
    {"zero_stage fsdp deepspeed tensor_parallel recompute gradient_checkpointing -z -r",
     "every rank holds the whole model and all activations of a micro-batch; a smaller batch_size saves "
     "memory"},
    {"flash flash_attention flash_attn attn_implementation tensorcores",
     "attention and matrix products have no variants to choose from"},
    {"model_type", "n_layer, n_head and n_embd give the model's shape, or init_from brings it"},
    {"config config_file conf", "a config file is given by its name alone"},
    {"report_to use_wandb wandb",
     "tensorboard=true writes TensorBoard's files; out_dir/log.jsonl has all that a run tells"},
};

/* Small letters, without dashes and underscores, but for a dash at the beginning of a flag of llm.c's.
 * Returns the bytes; what is longer is cut. */
static size_t simplify(char out[NAME_BYTES], const char *name, size_t name_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < name_bytes && used < NAME_BYTES; i++) {
        char c = name[i];
        if ((c != '_' && c != '-') || (c == '-' && i == 0)) {
            out[used++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        }
    }
    return used;
}

static int is_same(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    char plain_a[NAME_BYTES], plain_b[NAME_BYTES];
    size_t bytes = simplify(plain_a, a, a_bytes);
    return bytes > 0 && bytes == simplify(plain_b, b, b_bytes) && memcmp(plain_a, plain_b, bytes) == 0;
}

static int is_in_list(const char *list, const char *name, size_t name_bytes)
{
    for (const char *at = list; *at;) {
        size_t bytes = strcspn(at, " ");
        if (is_same(at, bytes, name, name_bytes)) {
            return 1;
        }
        at += bytes + (at[bytes] == ' ');
    }
    return 0;
}

/* Insertions, deletions, replacements and neighbours that changed places between two names of at most
 * NAME_BYTES. */
static int edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int rows[3][NAME_BYTES + 1];
    for (size_t j = 0; j <= b_bytes; j++) {
        rows[0][j] = (int)j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= b_bytes; j++) {
            int least = above[j - 1] + (a[i - 1] != b[j - 1]);
            int moved = (above[j] < row[j - 1] ? above[j] : row[j - 1]) + 1;
            least = moved < least ? moved : least;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && second[j - 2] + 1 < least) {
                least = second[j - 2] + 1;
            }
            row[j] = least;
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

/* One slip of the finger in a short name, three in a long one. */
static const char *find_close(const char *name, size_t name_bytes)
{
    char plain[NAME_BYTES], other[NAME_BYTES];
    size_t bytes = simplify(plain, name, name_bytes);
    const char *nearest = NULL;
    int nearest_distance = 1 + (int)bytes / 8;
    if (bytes < 3) {
        return NULL;
    }
    for (int i = 0; i < option_spec_count; i++) {
        const char *option = option_specs[i].name;
        size_t other_bytes = simplify(other, option, strlen(option));
        int distance = edit_distance(plain, bytes, other, other_bytes);
        if (distance < nearest_distance + (nearest == NULL)) {
            nearest = option;
            nearest_distance = distance;
        }
    }
    return nearest;
}

static const char *find_meant(const char *name, size_t name_bytes)
{
    for (int i = 0; i < option_spec_count; i++) {
        if (is_same(option_specs[i].name, strlen(option_specs[i].name), name, name_bytes)) {
            return option_specs[i].name;
        }
    }
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (is_in_list(meanings[i].others, name, name_bytes)) {
            return meanings[i].option;
        }
    }
    return name[0] == '-' ? find_close(name + 1, name_bytes - 1) : find_close(name, name_bytes);
}

int option_fail_unknown(const char *name, size_t name_bytes, Error *error)
{
    int shown = name_bytes < 80 ? (int)name_bytes : 80;
    int is_dashed = name_bytes > 1 && name[0] == '-' && name[1] != '-';
    if (!is_dashed && name_bytes > 2 && name[0] == '-') { /* --name in a config file */
        name += 2;
        name_bytes -= 2;
        shown -= 2;
    }
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        if (is_in_list(notes[i].names, name, name_bytes)) {
            return error_set(error, "%.*s: unknown option; %s", shown, name, notes[i].way);
        }
    }
    const char *meant = name_bytes > 0 ? find_meant(name, name_bytes) : NULL;
    if (is_dashed) {
        return meant ? error_set(error, "%.*s: expected --name=value; did you mean --%s? (--help lists all)",
                                 shown, name, meant)
                     : error_set(error, "%.*s: expected --name=value; --help lists the options", shown, name);
    }
    if (meant) {
        return error_set(error, "%.*s: unknown option; did you mean %s? (--help lists all)", shown, name,
                         meant);
    }
    return error_set(error, "%.*s: unknown option; --help lists all", shown, name);
}

/* How often a name stands in the two tables. */
static int count_places(const char *name, size_t name_bytes)
{
    int count = 0;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        count += is_in_list(meanings[i].others, name, name_bytes);
    }
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        count += is_in_list(notes[i].names, name, name_bytes);
    }
    for (int i = 0; i < option_spec_count; i++) {
        count += is_same(option_specs[i].name, strlen(option_specs[i].name), name, name_bytes);
    }
    return count;
}

static const char *find_repeated(const char *list)
{
    for (const char *at = list; *at;) {
        size_t bytes = strcspn(at, " ");
        const char *rest = at + bytes + (at[bytes] == ' ');
        if (count_places(at, bytes) != 1 || is_in_list(rest, at, bytes)) {
            return at;
        }
        at = rest;
    }
    return NULL;
}

const char *option_names_find_fault(void)
{
    const char *fault = NULL;
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]) && !fault; i++) {
        int is_option = option_find(meanings[i].option, strlen(meanings[i].option)) >= 0;
        fault = is_option ? find_repeated(meanings[i].others) : meanings[i].option;
    }
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]) && !fault; i++) {
        fault = find_repeated(notes[i].names);
    }
    return fault;
}
