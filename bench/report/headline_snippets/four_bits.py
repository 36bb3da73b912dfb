import glob

import pandas as pd

files = glob.glob("_llama-inference/*/latency-smollm2-135m-*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows["rate"] = rows["output_tokens"] / rows["e2e_s"]
runs = rows.groupby(["gpu", "host", "backend", "option", "run_id"])["rate"].mean()
means = runs.groupby(["gpu", "host", "backend", "option"]).agg(["mean", "size"])
means = means["mean"].where(means["size"] >= 3).unstack(["backend", "option"])
ratio = (means["llamacpp", "Q4_0"] / means["onnxruntime", "int4"]).dropna()
answer = {" ".join(machine): value for machine, value in ratio.items()}
