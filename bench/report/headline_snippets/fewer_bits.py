import glob

import pandas as pd

files = glob.glob("_llama-inference/*/latency-smollm2-135m-*096e72*.csv")
rows = pd.concat(pd.read_csv(file, dtype={"host": str}) for file in files)
rows["rate"] = rows["output_tokens"] / rows["e2e_s"]
means = rows.groupby(["backend", "option", "run_id"])["rate"].mean().groupby(level=[0, 1]).mean()
answer = {
    "onnxruntime": means["onnxruntime", "int8"] / means["onnxruntime", "float32"],
    "llamacpp": means["llamacpp", "Q8_0"] / means["llamacpp", "F16"],
    "ctranslate2": means["ctranslate2", "int8"] / means["ctranslate2", "float32"],
}
