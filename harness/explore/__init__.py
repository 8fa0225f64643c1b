"""Questions to the models that are answered while a reader moves a slider.

The questions are the studies' own (their modules `explore`, see experiments/question); here they
are found, asked, drawn, and put behind sliders in a notebook.
"""
