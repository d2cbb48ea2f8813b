"""The addresses of the review page, as a FastAPI application; everything they do is the server's."""

from __future__ import annotations

import json
import sqlite3
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated

from fastapi import Body, FastAPI, Request, Response

from labeltrace.engine.folder import finite
from labeltrace.errors import InputError
from labeltrace.review.queue import DOUBTED, Selection

if TYPE_CHECKING:
    from labeltrace.review.server import ReviewServer

PAGE = {"": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
Tab = Annotated[str, Body(max_length=64, embed=True)]


def routes(server: ReviewServer) -> FastAPI:
    """Return the application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    for name, kind in PAGE.items():
        _add_file(app, name, kind)

    @app.exception_handler(InputError)
    def refuse(request: Request, error: InputError) -> Response:
        return Response(f"{error}\n", 400, media_type="text/plain")

    @app.exception_handler(sqlite3.Error)
    def fail(request: Request, error: sqlite3.Error) -> Response:
        told = f"{server.store.path}: {error}; this is not kept, try again once that is put right\n"
        return Response(told, 503, media_type="text/plain")

    @app.get("/pictures/{row}")
    def picture(row: int) -> Response:
        if not server.pictures.are_images:
            raise InputError("the samples of this run are features, not images")
        png = server.pictures.png(server.queue.check(row))
        return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})

    @app.get("/api/about")
    def about() -> Response:
        return _json(server.about())

    @app.get("/api/look")
    def look(
        decision: str = DOUBTED,
        observed: int | None = None,
        state: str = "all",
        row: int | None = None,
        move: str = "here",
    ) -> Response:
        return _json(server.look(Selection(decision, observed, state), row, move))

    @app.get("/api/similar/{row}")
    def similar(row: int) -> Response:
        return _json(server.neighbours(row))

    @app.post("/api/decide")
    def decide(
        row: Annotated[int, Body()],
        action: Annotated[str, Body()],
        label: Annotated[int | None, Body()] = None,
        tab: Tab = "",
    ) -> Response:
        return _json(server.decide(row, action, label, tab))

    @app.post("/api/undo")
    def undo(tab: Tab = "") -> Response:
        return _json(server.undo(tab))

    @app.get("/labels.diff.csv")
    def diff(only_reviewed: bool = False) -> Response:
        name = {"Content-Disposition": 'attachment; filename="labels.diff.csv"'}
        return Response(server.diff(only_reviewed), media_type="text/csv", headers=name)

    return app


def _add_file(app: FastAPI, name: str, kind: str) -> None:
    @app.get(f"/{name}")
    def file() -> Response:
        return Response(files("labeltrace.review").joinpath(name or "page.html").read_bytes(), media_type=kind)


def _json(value: object) -> Response:
    return Response(json.dumps(finite(value), ensure_ascii=False), media_type="application/json")
