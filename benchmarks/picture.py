"""A picture of the page of `firehose serve --demo`, for the README.

    python benchmarks/picture.py [--out docs/page.png] [--seconds 60] [--looks FOLDER]

Serves the demo with people who post quickly, types a few words as one of them, and takes the
picture with Debian's chromium. With --looks, pictures of the whole page are made as well: on a
desktop, on a phone, and in the dark. Needs `pip install playwright` and `apt-get install chromium`.
"""

import argparse
import io
import shutil
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from firehose.game.settings import make_settings
from firehose.serving.demo import crowd, make_model
from firehose.serving.inbox import FILE, Inbox
from firehose.serving.service import ServiceSettings, running
from firehose.serving.state import REMEMBERING

LOOKS = {"desktop": (1280, 920, "light"), "phone": (390, 844, "light"), "dark": (1280, 900, "dark")}
TEXT = "i want the "
PATIENCE = 120_000  # milliseconds


def take(browser: Browser, address: str, user: str, look: str) -> bytes:
    """The whole page as a PNG, after somebody has begun to write as a user."""
    width, height, scheme = LOOKS[look]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1.25 if look == "desktop" else 1,
    )
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/#{quote(user)}")
    page.wait_for_selector("#known:not([hidden])")
    page.wait_for_selector("#posts li")
    page.click("#text")
    page.type("#text", TEXT)
    page.wait_for_selector("#choices button")
    page.wait_for_selector("#others b")
    page.evaluate("window.scrollTo(0, 0)")
    return page.screenshot(full_page=True)


def busiest(state: Path) -> str:
    """The user who has posted most."""
    inbox = Inbox(state / FILE)
    query = "SELECT user FROM posts GROUP BY user ORDER BY count(*) DESC LIMIT 1"
    found: str = inbox.database.value(query)
    inbox.close()
    return found


def small(picture: bytes) -> bytes:
    """The same picture with 128 colours, as it is shown beside text."""
    shown = Image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    shown.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main() -> None:
    """Take the pictures, and say how large the one for the README is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/page.png"))
    parser.add_argument("--seconds", type=float, default=60, help="that people post before it")
    parser.add_argument("--looks", type=Path, help="a folder for pictures of the whole page")
    arguments = parser.parse_args()
    settings = ServiceSettings(port=0, round_seconds=1.0)
    playing = make_settings("laptop", REMEMBERING).play
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder)
        with (
            running(model, folder / "state", settings, playing) as service,
            crowd(service, folder / "state", None, rate=12.0),
            sync_playwright() as driver,
        ):
            end = time.monotonic() + arguments.seconds
            service.look_after_until(lambda: time.monotonic() > end)
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            user = busiest(folder / "state")
            picture = small(take(browser, service.address, user, "desktop"))
            arguments.out.write_bytes(picture)
            print(f"{arguments.out}: {len(picture) / 1000:.0f} kB")
            for look in LOOKS if arguments.looks else ():
                path = arguments.looks / f"{look}.png"
                path.write_bytes(take(browser, service.address, user, look))
            browser.close()


if __name__ == "__main__":
    main()
