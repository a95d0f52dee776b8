import marimo

app = marimo.App()


@app.cell
def _():
    import flowgauge
    import pandas
    import pathlib

    root = pathlib.Path(__file__).resolve().parents[3]
    capture = root / "tests" / "captures" / "var-services-std-ports.pcap"
    reports = flowgauge.analyze(capture, accelerator="uniform:sample=2", task="top", seed=1)
    top = pandas.DataFrame.from_arrow(reports["top"])
    flows = top.source + ":" + top.source_port.astype(str) + " → " + top.destination
    bounds = [top.packets - top.packets_low, top.packets_high - top.packets]
    figure = top.set_index(flows).packets.plot.barh(xerr=bounds, xlabel="packets")
    figure
    return bounds, figure, reports, top


if __name__ == "__main__":
    app.run()
