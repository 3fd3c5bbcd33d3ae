"""The driver in C in this process: its registers a stand-in, its launches the exact model's."""

from __future__ import annotations

import ctypes

import pytest

from gemmule.config import load_config
from gemmule.csr import COUNTERS, IDENTITY, Csr, Status
from gemmule.resolve import FAULTS
from gemmule.sim.fuzz.generate import generate
from gemmule.sim.simulator import Simulator
from gemmule.sw.driver.decoder import placed_decoder, reference, token_texts
from gemmule.sw.driver.decoder_image import decoder_image
from gemmule.sw.models.pair import bundled_pair
from tests.thinned import some

from .c_library import Decoder, Device, Fault, ModelDevice, generated, library, opened

TINY, EDGE = load_config("tiny"), load_config("edge")
PROMPT = "def fib(n):\n    if n"
NO_DEVICE, OTHER_DEVICE, BUSY, FAULTED, BAD_IMAGE, NO_ROOM = range(-1, -7, -1)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library(tmp_path_factory.mktemp("tiny"), TINY)


@pytest.mark.parametrize(("answers", "wait", "polls"), some([
    ("tokens", True, 0), ("tokens", False, 5), ("logits", True, 0)], 2))
def test_it_generates_what_the_model_does(driver: ctypes.CDLL, answers: str, wait: bool, polls: int) -> None:
    """Tokens, launches and cycles; with the interrupt and polling; the greedy token the device's or the host's."""
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", TINY, rows=4, answers=answers)
    image = decoder_image(placed, prompt=pair.encode(PROMPT), ends=sorted(pair.ends),
                          texts=token_texts(pair.tokenizer, pair.vocab))
    device = ModelDevice(TINY, len(placed.dram), polls=polls)
    port, seen = device.port(wait=wait), list[int]()
    made = opened(driver, device, port)
    tokens, decoder = generated(driver, made, image, 6, seen=seen.append)
    expected = reference(placed, "model", pair.encode(PROMPT), 6, pair.ends)
    assert tokens == seen == expected.tokens
    assert (decoder.launches, decoder.cycles) == (expected.launches, expected.device_cycles)
    assert device.waits == (expected.launches if wait else 0)
    last = device.results[-1].registers
    assert [driver.gemmule_counter(ctypes.byref(made), i) for i in range(len(COUNTERS))] == list(last.values())
    told, text = b"", ctypes.c_char_p()
    for token in tokens:
        size = driver.gemmule_decoder_text(ctypes.byref(decoder), token, ctypes.byref(text))
        told += ctypes.string_at(text, size)
    assert told.decode() == pair.decode(tokens)
    again = len(device.writes)
    driver.gemmule_decoder_clear(ctypes.byref(decoder))
    assert generated(driver, made, image, 6)[0] == tokens
    assert len(device.writes) - again < 6 * 40, "registers that stay are written again"


def test_it_ends_a_text_with_its_end(driver: ctypes.CDLL) -> None:
    """With a token that ends a text, which the text keeps."""
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", TINY, rows=4)
    prompt = pair.encode(PROMPT)
    third = reference(placed, "model", prompt, 3, ()).tokens[-1]
    expected = reference(placed, "model", prompt, 6, {third})
    device = ModelDevice(TINY, len(placed.dram))
    port = device.port(wait=True)
    tokens, decoder = generated(driver, opened(driver, device, port),
                                decoder_image(placed, prompt=prompt, ends=[third]), 6)
    assert tokens == expected.tokens
    assert len(tokens) <= 3
    assert decoder.cycles == expected.device_cycles


def test_it_opens_its_own_device_alone(driver: ctypes.CDLL) -> None:
    device = ModelDevice(TINY, 1 << 16)
    port, made = device.port(wait=True), Device()

    def status(offset: int, value: int) -> int:
        kept = device.registers.get(offset, 0)
        device.registers[offset] = value
        found = driver.gemmule_open(ctypes.byref(made), ctypes.byref(port), TINY.identity)
        device.registers[offset] = kept
        return found

    assert status(Csr.IDENTITY, IDENTITY + 1) == NO_DEVICE
    assert status(Csr.CONFIGURATION, EDGE.identity) == OTHER_DEVICE
    assert status(Csr.STATUS, Status.BUSY) == BUSY
    assert device.writes == [], "a device that is not its own is left alone"
    assert status(Csr.STATUS, 0) == 0
    cleared = {offset for offset, value in device.writes if value == 0}
    assert {*(Csr.BASE_LO + 4 * i for i in range(64)), *(Csr.LIMIT_LO + 4 * i for i in range(64)),
            *(Csr.LENGTH0 + 4 * i for i in range(16))} <= cleared


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_it_tells_a_fault(driver: ctypes.CDLL, seed: int) -> None:
    """Random programs with commands that fault: code, index and place are the model's."""
    case = generate(TINY, seed, 40, faults=1.0)
    model = Simulator(TINY, dram_bytes=len(case.dram))
    model.load(case)
    expected = model.run()
    device = ModelDevice(TINY, len(case.dram))
    device.model.write_dram(0, case.dram)
    device.model.write_dram(case.program, case.image)
    port = device.port(wait=True)
    made, fault = opened(driver, device, port), Fault()
    for number in range(32):
        driver.gemmule_set_base(ctypes.byref(made), number, int(case.bases[number]))
        driver.gemmule_set_limit(ctypes.byref(made), number, int(case.limits[number]))
    for number in range(1, 16):
        driver.gemmule_set_length(ctypes.byref(made), number, int(case.lengths[number]))
    driver.gemmule_set_program(ctypes.byref(made), case.program, len(case.image) // 32)
    assert driver.gemmule_run(ctypes.byref(made)) == (FAULTED if expected.fault else 0)
    driver.gemmule_fault_of(ctypes.byref(made), ctypes.byref(fault))
    assert expected.fault, f"seed {seed} draws no fault"
    assert (FAULTS[fault.code], fault.index, fault.place) == (
        FAULTS[expected.fault], expected.fault_index, expected.fault_place)
    assert driver.gemmule_cycles(ctypes.byref(made)) == expected.cycles


def test_it_refuses_what_is_no_image_and_what_has_no_room(driver: ctypes.CDLL) -> None:
    pair = bundled_pair()
    placed = placed_decoder(pair, "draft", TINY, rows=4)
    image = decoder_image(placed, prompt=[5] * 4)
    device, decoder, made = ModelDevice(TINY, len(placed.dram)), Decoder(), Device()
    for wrong in (b"", image[:40], image[:-4], b"GMD2" + image[4:]):
        assert driver.gemmule_decoder_open(ctypes.byref(decoder), ctypes.byref(made), wrong, len(wrong)) == BAD_IMAGE
        assert driver.gemmule_decoder_configuration(wrong, len(wrong)) == 0
    assert driver.gemmule_decoder_configuration(image, len(image)) == TINY.identity
    port = device.port(wait=True)
    made = opened(driver, device, port)
    assert driver.gemmule_decoder_open(ctypes.byref(decoder), ctypes.byref(made), image, len(image)) == 0
    tokens, next_token = (ctypes.c_uint32 * 300)(), ctypes.c_uint32()
    for count in (0, 257):
        assert driver.gemmule_decoder_pass(
            ctypes.byref(decoder), tokens, count, ctypes.byref(next_token)) == NO_ROOM
    assert device.results == []
