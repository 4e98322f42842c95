"""The cluster files: valid for the pinned Ray, and what its validator does not look at. Needs no cloud."""

import pathlib
import re
import tomllib
from typing import Any

import pytest
import torch
import yaml
from guides import text_of
from scripts import import_script

ROOT = pathlib.Path(__file__).parent.parent
GCP = "jobs/cluster/gcp.yaml"
# file -> where the machine's type stands, and the type: 96 vCPU and 8 x A100 each (the clouds' own specifications)
MACHINES = {"cluster.yaml": ("InstanceType", "p4d.24xlarge"), GCP: ("machineType", "a2-highgpu-8g")}
LINES_TO_CHANGE = {"cluster.yaml": 3, GCP: 2}

# CUDA -> the driver that NVIDIA's release notes name for the first release of that toolkit on Linux
DRIVER_OF_CUDA = {
    "12.1": "530.30.02",
    "12.4": "550.54.14",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
}
# machine image -> its driver; both move on to newer ones
DRIVER_OF_IMAGE = {
    "base-oss-nvidia-driver-gpu-ubuntu-22.04": "595.91.07",  # of 2026-09-29
    "common-cu129-ubuntu-2204-nvidia-580": "580.159.03",  # of July 2026
    "common-cu124": "550.54.14",  # that of its CUDA; no longer offered
}
# what is installed -> the CUDA that it brings: requirements of the wheels on PyPI; tags of rayproject/ray
CUDA_OF_TORCH = {"2.13.0": "13.0"}
CUDA_OF_FAISS = {"1.15.1": "12.9"}
CUDA_OF_CONTAINER = {"gpu": "12.1", "cu124": "12.4", "cu126": "12.6", "cu128": "12.8", "cu129": "12.9"}


def pinned(package: str) -> str:
    version = re.search(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version, f"constraints.txt does not pin {package}"
    return version[1]


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return found


@pytest.fixture(params=MACHINES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ray_accepts_the_file(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(read(name)))


def expected_gpus(name: str) -> int:
    """What the file's own command waits for."""
    (count,) = re.findall(r"--wait_for_gpus (\d+)", (ROOT / name).read_text())
    return int(count)


def test_image_is_of_the_pinned_ray(name: str) -> None:
    assert read(name)["docker"]["image"].startswith(f"rayproject/ray:{pinned('ray')}-")


def test_head_runs_no_readers_and_workers_have_the_gpus_of_their_machine(name: str) -> None:
    cluster = read(name)
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    readers = types["readers"]
    key, machine = MACHINES[name]
    assert readers["node_config"][key] == machine
    assert readers["resources"] == {"CPU": 96, "GPU": 8}
    # a GPU pool may not grow on an autoscaling cluster, so its size is fixed
    assert readers["min_workers"] == readers["max_workers"] == cluster["max_workers"]
    assert expected_gpus(name) == readers["min_workers"] * readers["resources"]["GPU"]


def test_every_node_wants_the_token_and_gets_it(name: str) -> None:
    cluster = read(name)
    options = [option for option in cluster["docker"]["run_options"] if option.startswith("--env ")]
    variables = dict(option.removeprefix("--env ").split("=") for option in options)
    assert variables["RAY_AUTH_MODE"] == "token"
    assert cluster["file_mounts"][variables["RAY_AUTH_TOKEN_PATH"]] == "~/.ray/auth_token"
    commands = (ROOT / name).read_text().partition("ray up")[0]
    assert "export RAY_AUTH_MODE=token" in commands
    assert "ray get-auth-token --generate" in commands


def test_the_kubernetes_cluster_wants_a_token() -> None:
    assert read(JOB)["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}


def test_the_lines_to_change_are_marked_and_few(name: str) -> None:
    marked = [line for line in (ROOT / name).read_text().splitlines() if re.search(r"\S.*# CHANGE", line)]
    assert len(marked) == LINES_TO_CHANGE[name]


# --- drivers ---


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def machine_image(node_config: dict[str, Any], text: str) -> str | None:
    """Name of the image that a machine boots; None where Ray would choose one of its own."""
    if "ImageId" in node_config:  # differs between regions; the file names the parameter that holds it
        (name,) = re.findall(r"/aws/service/deeplearning/ami/x86_64/(\S+)/latest/ami-id", text)
        return str(name)
    for disk in node_config.get("disks", []):
        return str(disk["initializeParams"]["sourceImage"]).rpartition("/family/")[2]
    return None


def cudas_of(cluster: dict[str, Any]) -> dict[str, str]:
    """What brings CUDA with it on the machines of a cluster, and which."""
    index = re.search(r"download\.pytorch\.org/whl/cu(\d\d)(\d)", " ".join(cluster["setup_commands"]))
    return {
        "torch": f"{index[1]}.{index[2]}" if index else CUDA_OF_TORCH[pinned("torch")],
        "faiss-gpu": CUDA_OF_FAISS[pinned("faiss-gpu")],
        "the container": CUDA_OF_CONTAINER[cluster["docker"]["image"].rpartition("-")[2]],
    }


def misfits(text: str) -> set[str]:
    """What does not run with the drivers of a cluster file's machine images."""
    cluster = yaml.safe_load(text)
    found = set()
    for node_type in cluster["available_node_types"].values():
        image = machine_image(node_type["node_config"], text)
        driver = DRIVER_OF_IMAGE.get(image or "")
        if driver is None:
            found.add(f"no known driver: {image}")
            continue
        for what, cuda in cudas_of(cluster).items():
            if numbers(driver) < numbers(DRIVER_OF_CUDA[cuda]):
                found.add(f"{what} (CUDA {cuda}) needs driver {DRIVER_OF_CUDA[cuda]}, {image} has {driver}")
    return found


def test_the_drivers_fit_what_is_installed(name: str) -> None:
    assert misfits((ROOT / name).read_text()) == set()


@pytest.mark.parametrize(
    ("name", "pattern", "instead", "expected"),
    [
        ("cluster.yaml", r" +ImageId: .*\n", "", {"no known driver: None"}),
        (GCP, "common-cu129-ubuntu-2204-nvidia-580", "common-cu124",
         {"torch (CUDA 13.0) needs driver 580.65.06, common-cu124 has 550.54.14",
          "faiss-gpu (CUDA 12.9) needs driver 575.51.03, common-cu124 has 550.54.14"}),
        (GCP, "nvidia-580", "nvidia-000", {"no known driver: common-cu129-ubuntu-2204-nvidia-000"}),
    ],
)  # fmt: skip
def test_a_driver_that_does_not_fit_is_found(
    name: str, pattern: str, instead: str, expected: set[str]
) -> None:
    assert misfits(re.sub(pattern, instead, (ROOT / name).read_text())) == expected


def test_another_build_of_torch_is_seen(name: str) -> None:
    cluster = read(name)
    assert cudas_of(cluster)["torch"] == "13.0"
    cluster["setup_commands"][:0] = ["pip install torch --index-url https://download.pytorch.org/whl/cu126"]
    assert cudas_of(cluster)["torch"] == "12.6"


def test_the_guide_and_the_kubernetes_file_name_the_driver_of_the_pinned_torch() -> None:
    branch = numbers(DRIVER_OF_CUDA[CUDA_OF_TORCH[pinned("torch")]])[0]
    assert f"NVIDIA driver {branch} or newer" in text_of("jobs/cluster/README.md")
    assert f"{branch} or newer" in (ROOT / JOB).read_text()


def test_both_builds_of_faiss_are_of_one_release() -> None:
    assert pinned("faiss-gpu") == pinned("faiss-cpu")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [re.split("[>=]", extras[extra][0])[0] for extra in ("cpu", "gpu")] == ["faiss-cpu", "faiss-gpu"]


# --- the check on the machines ---

CHECK = "jobs/cluster/check_gpu.py"


def test_the_setup_of_machines_with_gpus_ends_with_a_product_on_them(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config

    cluster = prepare_config(read(name))
    (folder,) = (remote for remote, local in cluster["file_mounts"].items() if local == ".")
    command = f"python {folder}/{CHECK}"
    assert (ROOT / CHECK).exists()
    assert cluster["worker_setup_commands"][-1] == command
    assert command not in cluster["head_setup_commands"]  # it has no GPU


def test_the_check_ends_with_torchs_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12040).")

    monkeypatch.setattr(torch.cuda, "current_device", start)
    with pytest.raises(SystemExit, match=r"^torch 2\S* \(CUDA .*too old \(found version 12040\)\.\n"):
        import_script(CHECK).main()


def test_the_check_multiplies_on_each_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ones, devices = torch.ones, []
    factor = 1

    def on_device(*shape: int, device: int) -> torch.Tensor:
        devices.append(device)
        return ones(*shape) * (factor if device == 1 else 1)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "ones", on_device)
    import_script(CHECK).main()
    assert devices == [0, 1]
    assert "works on 2 GPUs" in capsys.readouterr().out
    factor = 2
    with pytest.raises(SystemExit, match="GPU 1 gives a wrong product"):
        import_script(CHECK).main()


JOB = "jobs/cluster/rayjob.yaml"
# fields of KubeRay's RayJob and RayCluster (ray.io/v1) that the file may use: a typing error is not one of them
ENDS = {"backoffLimit", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"}
SPEC = {"entrypoint", "runtimeEnvYAML", "rayClusterSpec", *ENDS}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def test_the_kubernetes_job_is_tried_again_and_names_only_what_there_is() -> None:
    job = read(JOB)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert set(job["spec"]) == SPEC
    assert job["spec"]["backoffLimit"] >= 1
    cluster = job["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert set(cluster["headGroupSpec"]) == GROUP & {"rayStartParams", "template"}
    (workers,) = cluster["workerGroupSpecs"]
    assert set(workers) == GROUP
    assert yaml.safe_load(job["spec"]["runtimeEnvYAML"]).keys() == {"env_vars"}


def test_the_kubernetes_job_writes_to_the_shared_volume() -> None:
    _, _, *arguments = read(JOB)["spec"]["entrypoint"].split()
    values = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert all(values[key].startswith("/shared/") for key in ("--config", "--out", "--cache_dir"))


def test_the_kubernetes_job_has_the_pinned_ray_a_bare_head_and_whole_machines() -> None:
    cluster = read(JOB)["spec"]["rayClusterSpec"]
    text = (ROOT / JOB).read_text()
    assert cluster["rayVersion"] == pinned("ray")
    assert set(re.findall(r"(\d+\.\d+\.\d+)-py311", text)) == {pinned("ray")}
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"]
    assert expected_gpus(JOB) == 8 * workers["replicas"]
    head, worker = (group["template"]["spec"] for group in (cluster["headGroupSpec"], workers))
    (container,) = worker["containers"]
    # Kubernetes wants requests and limits of a device to be equal
    assert {container["resources"][kind]["nvidia.com/gpu"] for kind in ("requests", "limits")} == {"8"}
    (check,) = worker["initContainers"]
    assert check["command"] == ["python", f"/shared/erag_ray/{CHECK}"]
    for kind in ("requests", "limits"):
        assert check["resources"][kind]["nvidia.com/gpu"] == "8"
    assert {"name": "shared", "mountPath": "/shared"} in check["volumeMounts"]
    assert check["image"] == container["image"]
    for pod in (head, worker):
        (container,) = pod["containers"]
        assert container["image"].endswith(f":{pinned('ray')}")
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            one["name"] for one in pod["volumes"]
        }
