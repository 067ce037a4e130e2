"""``python -m geminga.app.container NAME WORDS``: the files of the image's ``bin`` call it."""

from geminga.app.container.programs import main

main()
