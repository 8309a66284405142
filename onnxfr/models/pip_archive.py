"""Saves one named archive of a package as pip would find it, without ever building or running it.

``pip download`` runs an sdist's set-up code and refuses wheels of other platforms. This script
asks pip, in a process of its own, only for its list of links: index, credentials, certificates and
proxies are pip's own configuration. It leans on pip's internals, so it is kept apart and any
surprise in them ends in an ordinary message.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from urllib.request import url2pathname


def save(package: str, file: str, folder: Path) -> None:
    """Put ``file`` of ``package`` into ``folder``; exits with a message where that fails."""
    from pip._internal.commands import create_command
    from pip._internal.index.collector import LinkCollector, parse_links
    from pip._internal.models.link import Link

    command = create_command("download")
    options, _ = command.parse_args([])
    session = command._build_session(options)  # type: ignore[attr-defined]
    collector = LinkCollector.create(session, options)
    for place in collector.search_scope.find_links:
        local = Path(place.removeprefix("file://")) / file
        if local.is_file():
            shutil.copyfile(local, folder / file)
            return
    pages = 0
    for index in collector.search_scope.get_index_urls_locations(package):
        page = collector.fetch_response(Link(index))
        pages += page is not None
        for link in parse_links(page) if page is not None else ():
            if link.filename == file:
                _download(session, link.url_without_fragment, folder / file)
                return
    if not pages:
        sys.exit(f"the registry cannot be reached, or knows no package {package}")
    sys.exit(f"no archive called {file} is listed for {package}")


def _download(session: object, url: str, target: Path) -> None:
    if url.startswith("file:"):
        shutil.copyfile(url2pathname(url.removeprefix("file:").removeprefix("//")), target)
        return
    get = session.get  # type: ignore[attr-defined]
    with get(url, stream=True, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        with target.open("wb") as out:
            for block in answer.iter_content(1 << 20):
                out.write(block)


if __name__ == "__main__":
    save(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
