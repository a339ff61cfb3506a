"""The examples at the end of each command's help."""

from __future__ import annotations

EXAMPLES = {
    "": (
        "compare",
        "solve pipeline/bert-large --devices 8",
        "solve --help",
    ),
    "solve": (
        "solve pipeline/bert-large --devices 8 --training --plot stages.png",
        "solve packing/random/planted -m exact -t 60 -o result.json",
        "solve config.json --cluster 4xh100 --set sequence=8192,microbatch=2",
        "solve graph.txt --kind pipeline --devices 4 --objective bottleneck",
    ),
    "compare": (
        "compare --kind packing -t 1",
        "compare suite.toml --store sweep -j 2 --no-html",
        "compare a.csv b.csv -m auto -m exact -t 10 --csv table.csv",
    ),
    "plan": (
        "plan bert-large --cluster ipu-pod4 -o plan.json",
        "plan config.json --cluster 2x8xh100 --training --global-batch 512",
        "plan net.onnx --cluster ipu-pod4 --training --plot steps.html",
        "plan gpt2-xl --cluster ipu-pod4 --remote gc200",
        "plan resnet50 --devices 4 --microbatches 8 --local bm1684x",
    ),
    "serving": (
        "serving config.json --cluster 4xh100 --context 8192",
        "serving config.json --cluster 2x8xh200 --csv front.csv",
    ),
    "tune": (
        "tune bert-base --over batch=1:64 --monotone batch",
        "tune gpt2-small --over devices=2,4 --over microbatches=4,8",
    ),
    "measure": (
        "measure plan.json --model net.py:make --order gpipe --order 1f1b",
        "measure plan.json --model net.py:make --threads 1 --json",
    ),
    "results": (
        "results sweep --profile profile.png",
        "results sweep --against last-week --where method=auto",
    ),
    "report": (
        "report plan.json -o plan.html",
        "report pipeline/bert-large result.json plan.json sweep -o page.html",
    ),
    "pareto": (
        "pareto pipeline/bert-large --plot front.png",
        "pareto schedule/zero-bubble/small -t 2 --csv front.csv",
    ),
    "explain": (
        "explain pipeline/bert-large --devices 8",
        "explain graph/vgg19 --json",
    ),
    "check": (
        "check pipeline/bert-large result.json --devices 8",
        "check a.csv offsets.csv --json",
    ),
    "show": (
        "show pipeline/bert-large --devices 8",
        "show a.csv result.json",
    ),
    "plot": (
        "plot pipeline/bert-large result.json -o stages.png --scale layers",
        "plot a.csv result.json -o map.html",
    ),
    "list": (
        "list packing",
        "list pipeline/bert-large",
    ),
    "convert": (
        "convert graph.txt vgg16.json.gz --kind pipeline --devices 4",
        "convert packing/random/planted planted.json --set buffers=50",
        "convert graph/vgg19 stages.json --solution result.json --as schedule",
    ),
    "import": (
        "import net.onnx --kind graph --cluster ipu-pod4 --batch 16 -o x.json",
        "import net.onnx --kind packing --training -o memory.json.gz",
    ),
    "methods": (
        "methods --kind schedule",
        "methods pipeline/bert-large --devices 8",
    ),
    "schema": (
        "schema packing",
        "schema pipeline-partition > pipeline.schema.json",
    ),
}
