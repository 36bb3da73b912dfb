import glob

import pandas as pd

files = glob.glob("_llama-inference/vllm/serving-smollm2-135m-bfloat16-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows = rows[rows["request_rate"] == rows["request_rate"].max()]
tpot_s = (rows["e2e_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)
met = (rows["ttft_s"] <= 1) & (tpot_s <= 0.1)
answer = {"met": int(met.sum()), "requests": len(rows), "load": rows["request_rate"].iloc[0]}
