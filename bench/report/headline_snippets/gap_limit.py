import glob

import pandas as pd

files = glob.glob("_llama-inference/*/batching-smollm2-135m-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows = rows[(rows["prompt_tokens"] == 512) & (rows["max_new_tokens"] == 64)]
rows["ended_s"] = rows["sent_s"] + rows["e2e_s"]
batches = rows.groupby(["backend", "option", "batch_size", "run_id", "sent_s"])
rate = batches["output_tokens"].sum() / (batches["ended_s"].max() - batches["sent_s"].min())
rates = rate.groupby(level=[0, 1, 2, 3]).median().groupby(level=[0, 1, 2]).mean()
gaps = rows.groupby(["backend", "option", "batch_size"])["itl_max_s"].max()
best = rates[gaps <= 0.1].idxmax()
firsts = batches["ttft_s"].median().groupby(level=[0, 1, 2, 3]).median().groupby(level=[0, 1, 2]).mean()
answer = {"name": " ".join(best[:2]), "size": best[2], "rate": rates[best], "first_s": firsts[best]}
