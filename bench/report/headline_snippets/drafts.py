import glob

import pandas as pd

files = glob.glob("_llama-inference/*/latency-smollm2-135m-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows["rate"] = rows["output_tokens"] / rows["e2e_s"]
means = rows.groupby(["backend", "option", "run_id"])["rate"].mean().groupby(level=[0, 1]).mean()
answer = {
    "vllm": means["vllm", "bfloat16-ngram"] / means["vllm", "bfloat16"],
    "llamacpp": means["llamacpp", "Q8_0-ngram"] / means["llamacpp", "Q8_0"],
}
