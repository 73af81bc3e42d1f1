"""Runs ONNX models with ONNX Runtime and compares their outputs with expected ones.

The argument is a folder. Every folder in it is a case: model.onnx, inputs in.NAME.npy, expected outputs out.NAME.npy, the
name of the case and the tolerance. An error is a difference in units of units.npy, which has one for each row, or of the
largest element of the output or 1.
"""

import pathlib
import sys

import numpy
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(3)
failed = False
for case in sorted(path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_dir()):
    name, tolerance = (case / "name").read_text(), float((case / "tolerance").read_text())
    try:
        model = onnx.load(case / "model.onnx")
        onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(case / "model.onnx", options, providers=["CPUExecutionProvider"])
        inputs = {path.name[3:-4]: numpy.load(path) for path in case.glob("in.*.npy")}
        outputs = {path.name[4:-4]: numpy.load(path) for path in case.glob("out.*.npy")}
        results = dict(zip(outputs, session.run(list(outputs), inputs)))
        units = numpy.load(case / "units.npy") if (case / "units.npy").exists() else None
        worst = 0.0
        for key, right in outputs.items():
            found = results[key]
            assert (found.dtype, found.shape) == (right.dtype, right.shape), (key, found.dtype, found.shape, right.shape)
            finite = numpy.isfinite(right)
            assert numpy.array_equal(found[~finite], right[~finite], equal_nan=True), (key, found, right)
            errors = numpy.where(finite, found.astype(float) - numpy.where(finite, right, 0), 0)
            if units is not None:
                errors = errors / units.reshape([-1] + [1] * (right.ndim - 1))
            elif finite.any():
                errors = errors / max(1.0, float(numpy.abs(right[finite].astype(float)).max()))
            worst = max(worst, float(numpy.abs(errors).max(initial=0)))
        assert worst <= tolerance, f"error {worst} exceeds {tolerance}"
        print(f"{name}: error {worst:.1e}", flush=True)
    except Exception as error:
        failed = True
        print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
sys.exit(failed)
