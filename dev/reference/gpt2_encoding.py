"""tiktoken's gpt2 encoding, from the repository's merges: nothing is downloaded."""
import pathlib


def gpt2_encoding():
    import tiktoken
    from tiktoken_ext.openai_public import r50k_pat_str

    merges = pathlib.Path(__file__).resolve().parents[2] / "llmc/text/gpt2_vocab/vocab.bpe"
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    byte_of, ranks = {}, {}
    for byte in [*printable, *(b for b in range(256) if b not in printable)]:
        character = chr(byte) if byte in printable else chr(256 + len(ranks) - len(printable))
        byte_of[character] = byte
        ranks[bytes([byte])] = len(ranks)
    for line in merges.read_text(encoding="utf-8").splitlines()[1:]:
        ranks[bytes(byte_of[c] for c in line.replace(" ", ""))] = len(ranks)
    return tiktoken.Encoding(
        "gpt2", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
