import glob

import pandas as pd

files = glob.glob("_llama-inference/*/latency-smollm2-135m-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
medians = rows.groupby(["backend", "option", "run_id"])["ttft_s"].median()
means = 1000 * medians.groupby(["backend", "option"]).mean()
answer = {f"vllm {option}": means["vllm", option] for option in ("bfloat16-compiled", "bfloat16")}
for name in (("openvino", "F16"), ("transformers", "bfloat16"), ("llamacpp", "F16")):
    answer[" ".join(name)] = means[name]
