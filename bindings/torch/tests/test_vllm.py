"""vLLM on the CPU with unisono's plug-in and without: the same model, made here with random weights,
gives the same tokens with the same probabilities.

    python test_vllm.py
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROMPTS = [[3, 5, 8, 13, 21], [9] * 20, list(range(100, 160))]
TOKENS = 24
MARK = "tokens and logarithms of probabilities: "


def make_model(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=512,
        max_position_embeddings=256,
        initializer_range=0.2,
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def generate(folder, tensor_parallel, pipeline_parallel):
    from vllm import LLM, SamplingParams

    model = LLM(
        folder,
        tensor_parallel_size=tensor_parallel,
        pipeline_parallel_size=pipeline_parallel,
        distributed_executor_backend="mp",
        skip_tokenizer_init=True,
        max_model_len=128,
        max_num_seqs=4,
        dtype="bfloat16",
    )
    sampling = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False, logprobs=1
    )
    outputs = model.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS], sampling)
    answers = [
        [(token, each[token].logprob) for token, each in zip(made.token_ids, made.logprobs)]
        for made in (output.outputs[0] for output in outputs)
    ]
    print(MARK + json.dumps(answers), flush=True)


def answers_of(folder, plugin, *parallel):
    """What a process of its own generates, and all that it says."""
    environment = {
        **os.environ,
        "VLLM_PLUGINS": plugin,
        "VLLM_CACHE_ROOT": os.path.join(folder, "cache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, __file__, "generate", folder, *map(str, parallel)]
    done = subprocess.run(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    assert lines, done.stdout[-8000:]
    return lines[0].removeprefix(MARK), done.stdout


class Vllm(unittest.TestCase):
    def assertSameAnswers(self, group, *parallel):
        with tempfile.TemporaryDirectory() as folder:
            make_model(folder)
            own, _ = answers_of(folder, "", *parallel)
            ours, said = answers_of(folder, "unisono", *parallel)
            self.assertIn(f"{group}:0 is <unisono group: rank 0 of 2", said)
            self.assertEqual(ours, own)
            self.assertEqual([len(answer) for answer in json.loads(ours)], [TOKENS] * len(PROMPTS))

    def test_tensor_parallel(self):
        self.assertSameAnswers("tp", 2, 1)

    def test_pipeline_parallel(self):
        self.assertSameAnswers("pp", 1, 2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["generate"]:
        generate(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        unittest.main(verbosity=2)
