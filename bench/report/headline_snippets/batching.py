import glob

import pandas as pd

files = glob.glob("_llama-inference/*/batching-smollm2-135m-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows = rows[(rows["prompt_tokens"] == 512) & (rows["max_new_tokens"] == 64)]
rows["ended_s"] = rows["sent_s"] + rows["e2e_s"]
batches = rows.groupby(["backend", "option", "run_id", "batch_size", "sent_s"])
rate = batches["output_tokens"].sum() / (batches["ended_s"].max() - batches["sent_s"].min())
rates = rate.groupby(["backend", "option", "run_id", "batch_size"]).median().unstack()
gains = rates.div(rates[1], axis=0).groupby(["backend", "option"]).mean()
best = gains.max(axis=1).idxmax()
size = gains.loc[best].idxmax()
answer = {"name": " ".join(best), "gain": gains.loc[best, size], "size": size}
