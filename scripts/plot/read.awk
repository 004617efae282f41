# Reads one log.jsonl (docs/log.md) for scripts/plot.sh, and prints what is drawn:
#   facts  KEY VALUE                 parameters ranks dataset dtype backend updates
#   step   tokens seconds loss mean_loss tok_per_s mean_tok_per_s mean_comm_percent mean_exposed_percent norm
#   eval   tokens seconds val_loss
# Means are running ones. tokens: trained on before this update. seconds: of training until then, evaluations
# and what was lost in a crash not counted.
#
# A run that was resumed has several start events. Where updates were made again, the later ones count: an
# event of update i takes back all that was read of i and later. Lines that are not whole events (the last one
# of a run that was killed) are skipped; so are evaluations made by eval_only, which are none of the run's.
#   -v points=N       steps are averaged until there are at most so many

# The number at "key": of this line; "" where there is none (null stands for what is not finite).
function number(key, place) {
    place = index($0, "\"" key "\":")
    place = place ? substr($0, place + length(key) + 3, 32) : ""
    return place ~ /^-?[0-9]/ ? place + 0 : ""
}
# The text there, as far as the next quotation mark.
function text(key, place) {
    place = index($0, "\"" key "\":\"")
    place = place ? substr($0, place + length(key) + 4) : ""
    return substr(place, 1, index(place "\"", "\"") - 1)
}
# Updates from `iter` on, and what was evaluated after more than `made` of them, are taken back.
function take_back(iter, made) {
    while (steps > 0 && iters[steps] >= iter) steps--
    while (evals > 0 && eval_iters[evals] > made) evals--
}
# Tokens and seconds before update `iter`, which comes after those read.
function tokens_at(iter) {
    return steps ? tokens[steps] + (iter - iters[steps]) * step_tokens[steps] : iter * update_tokens
}
# Where not each update is logged, those between count like this one: the first one of all warms up.
function seconds_at(iter, took, between) {
    between = steps ? iter - iters[steps] - 1 : iter
    return steps ? seconds[steps] + (ms[steps] + between * took) / 1000 : between * took / 1000
}

!/^\{"event":".*\}\r?$/ { next }

/^\{"event":"start",/ {
    is_training = $0 !~ /"eval_only":true/ && $0 !~ /"sample_only":true/
    if (is_training) {
        update_tokens = number("batch_size") * number("block_size") * number("gradient_accumulation_steps")
        facts["parameters"] = number("parameters")
        facts["ranks"] = number("ranks")
        facts["dataset"] = text("train_data") == "" ? text("dataset") : text("train_data")
        facts["dtype"] = text("dtype")
        facts["backend"] = text("backend")
    }
}

/^\{"event":"step",/ {
    iter = number("iter")
    took = number("ms")
    if (iter == "" || took == "") next
    take_back(iter, iter)
    at = tokens_at(iter)
    time = seconds_at(iter, took)
    n = ++steps
    iters[n] = iter
    tokens[n] = at
    seconds[n] = time
    step_tokens[n] = update_tokens
    ms[n] = took
    loss[n] = number("loss")
    norm[n] = number("norm")
    comm[n] = number("comm_ms") + 0
    exposed[n] = number("exposed_ms") + 0
}

/^\{"event":"eval",/ && is_training {
    iter = number("iter")
    if (iter == "") next
    take_back(iter, iter - 1)
    if (number("val_loss") == "") next
    m = ++evals
    eval_iters[m] = iter
    eval_loss[m] = number("val_loss")
}

END {
    for (key in facts) print "facts", key, facts[key]
    print "facts updates", steps ? iters[steps] + 1 : 0

    # Means of `stride` steps, so that a long run is no larger picture than a short one.
    stride = points > 0 ? int((steps + points - 1) / points) : 1
    for (i = 1; i <= steps; i += stride) {
        count = known = sum_loss = sum_norm = sum_ms = sum_tokens = sum_comm = sum_exposed = 0
        for (j = i; j < i + stride && j <= steps; j++) {
            count++
            sum_ms += ms[j]
            sum_tokens += step_tokens[j]
            sum_comm += comm[j]
            sum_exposed += exposed[j]
            if (loss[j] == "" || norm[j] == "") continue
            known++
            sum_loss += loss[j]
            sum_norm += norm[j]
        }
        if (!known || sum_ms <= 0) continue
        n = ++bins
        middle = i + int((count - 1) / 2)
        bin_tokens[n] = tokens[middle]
        bin_seconds[n] = seconds[middle]
        bin_loss[n] = sum_loss / known
        bin_rate[n] = sum_tokens / sum_ms * 1000
        bin_norm[n] = sum_norm / known
        total_loss[n] = total_loss[n - 1] + bin_loss[n]
        total_tokens[n] = total_tokens[n - 1] + sum_tokens
        total_ms[n] = total_ms[n - 1] + sum_ms
        total_comm[n] = total_comm[n - 1] + sum_comm
        total_exposed[n] = total_exposed[n - 1] + sum_exposed
    }
    # The running mean takes in as many on either side, fewer at the begin, where the loss falls.
    for (i = 1; i <= bins; i++) {
        half = int(bins / 60)
        if (half > (i - 1) / 2) half = int((i - 1) / 2)
        low = i - half - 1
        high = i + half < bins ? i + half : bins
        span = total_ms[high] - total_ms[low]
        printf "step %.0f %.6g %.6g %.6g %.6g %.6g %.4g %.4g %.6g\n", bin_tokens[i], bin_seconds[i],
            bin_loss[i], (total_loss[high] - total_loss[low]) / (high - low), bin_rate[i],
            (total_tokens[high] - total_tokens[low]) / span * 1000,
            (total_comm[high] - total_comm[low]) / span * 100,
            (total_exposed[high] - total_exposed[low]) / span * 100, bin_norm[i]
    }

    # An evaluation stands where the updates before it end.
    last = 1
    for (i = 1; i <= evals; i++) {
        while (last < steps && iters[last + 1] < eval_iters[i]) last++
        made = steps && iters[last] < eval_iters[i]
        printf "eval %.0f %.6g %.6g\n",
            made ? tokens[last] + (eval_iters[i] - iters[last]) * step_tokens[last] : tokens[1] + 0,
            made ? seconds[last] + (eval_iters[i] - iters[last]) * ms[last] / 1000 : seconds[1] + 0,
            eval_loss[i]
    }
}
